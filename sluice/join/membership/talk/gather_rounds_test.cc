#include <sluice/join/membership/talk/gather_rounds.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sluice/base/units.h>

namespace sluice::membership {
namespace {

constexpr size_t kMost = 8 * kPartBytes;

// Members of one job. Messages travel in order between each two, and arrive when the test says so.
class RoundsWorld final {
 public:
  explicit RoundsWorld(uint32_t members) {
    for (uint32_t m = 0; m < members; ++m) all_.push_back(Rank{m});
    parties_.resize(members);
    for (uint32_t m = 0; m < members; ++m) {
      Party& party = parties_[m];
      party.rounds = std::make_unique<GatherRounds>(
          [this, m](const std::vector<Rank>& to, const MemberMessage& message) {
            for (const Rank rank : to) {
              const Rank member = parties_[m].view.memberAt(rank);
              ways_[{m, index(member)}].push_back(message);
            }
          },
          [] { /* runDue() is called after every event */ });
    }
    enter(all_);
  }

  // The members that are left enter the next epoch, each at a moment of its own.
  void enter(const std::vector<Rank>& members) {
    ++epoch_;
    living_ = members;
    for (const Rank member : members) due_.push_back(member);
    if (epoch_ == 1) {
      while (!due_.empty()) enterOne(0);
    }
  }

  void begin(Rank member, const std::string& key) {
    Party& party = parties_[index(member)];
    const uint64_t number = party.begun++;
    party.rounds->begin(
        key, kMost,
        [&party, member, number](const EpochView& view) {
          return fmt::format("{} of {} in {} {}", number, member, view.epoch,
                             std::string(party.pad, '.'));
        },
        [&party](Result<GatherRounds::Values> values) { party.got.push_back(*std::move(values)); });
    party.rounds->runDue();
  }

  // Lets one message arrive, or one member enter the epoch; false if nothing is left to do.
  bool step(std::mt19937& random) {
    std::vector<std::pair<uint32_t, uint32_t>> ready;
    for (const auto& [way, messages] : ways_) {
      if (!messages.empty() && isAlive(Rank{way.second})) ready.push_back(way);
    }
    const size_t choices = ready.size() + due_.size();
    if (choices == 0) return false;
    const size_t choice = random() % choices;
    if (choice >= ready.size()) {
      enterOne(choice - ready.size());
    } else {
      arrive(ready[choice]);
    }
    return true;
  }

  const std::vector<Rank>& living() const { return living_; }
  const std::vector<GatherRounds::Values>& got(Rank member) const {
    return parties_[index(member)].got;
  }
  bool isIdle(Rank member) const { return parties_[index(member)].rounds->isIdle(); }
  void pad(Rank member, size_t bytes) { parties_[index(member)].pad = bytes; }

 private:
  struct Party {
    std::unique_ptr<GatherRounds> rounds;
    EpochView view;
    std::vector<std::pair<Rank, MemberMessage>> early;
    uint64_t begun = 0;
    size_t pad = 0;
    std::vector<GatherRounds::Values> got;
  };

  bool isAlive(Rank member) const { return std::ranges::count(living_, member) > 0; }

  void enterOne(size_t place) {
    const Rank member = due_[place];
    due_.erase(due_.begin() + static_cast<std::ptrdiff_t>(place));
    if (!isAlive(member)) return;
    Party& party = parties_[index(member)];
    const bool isThere = party.view.size() > 0 && party.view.epoch == Epoch{epoch_ - 1};
    if (isThere) return;  // it has skipped the epoch between
    party.view = {.epoch = Epoch{epoch_ - 1}, .members = living_, .self = {}};
    party.view.self = *party.view.rankOf(member);
    party.rounds->enter(party.view);
    for (auto& [from, message] : std::exchange(party.early, {})) hear(party, from, message);
    party.rounds->runDue();
  }

  void arrive(const std::pair<uint32_t, uint32_t>& way) {
    const MemberMessage message = ways_[way].front();
    ways_[way].pop_front();
    Party& party = parties_[way.second];
    hear(party, Rank{way.first}, message);
    party.rounds->runDue();
  }

  void hear(Party& party, Rank from, const MemberMessage& message) {
    if (message.epoch > party.view.epoch) return party.early.emplace_back(from, message), void();
    const auto rank = party.view.rankOf(from);
    if (!rank || message.epoch < party.view.epoch) return;
    const Status heard = party.rounds->onMessage(*rank, message);
    EXPECT_TRUE(heard.isOk()) << heard.toString();
  }

  std::vector<Rank> all_;
  std::vector<Rank> living_;
  std::vector<Party> parties_;
  std::map<std::pair<uint32_t, uint32_t>, std::deque<MemberMessage>> ways_;
  std::vector<Rank> due_;  // members that have not entered the newest epoch
  uint32_t epoch_ = 0;
};

TEST(GatherRounds, EverybodyGetsTheValuesOfAll) {
  RoundsWorld world(3);
  std::mt19937 random(1);
  world.pad(Rank{1}, 3 * kPartBytes);  // travels in parts
  for (const Rank member : world.living()) world.begin(member, "a");
  while (world.step(random)) {
  }
  for (const Rank member : world.living()) {
    ASSERT_EQ(world.got(member).size(), 1U);
    EXPECT_EQ(world.got(member)[0].size(), 3U);
    EXPECT_EQ(world.got(member)[0], world.got(Rank{0})[0]);
    EXPECT_TRUE(world.isIdle(member));
  }
}

TEST(GatherRounds, AMemberAloneHasItsOwnValue) {
  RoundsWorld world(1);
  world.begin(Rank{0}, "a");
  ASSERT_EQ(world.got(Rank{0}).size(), 1U);
  EXPECT_TRUE(world.isIdle(Rank{0}));
}

TEST(GatherRounds, AResultOfARoundThatWasNotBegunIsRefused) {
  GatherRounds rounds([](const auto&, const MemberMessage&) {}, [] {});
  rounds.enter({.epoch = Epoch{0}, .members = {Rank{0}, Rank{1}}, .self = Rank{0}});
  EXPECT_FALSE(rounds.onMessage(Rank{1}, {.kind = MemberMessageKind::kResult, .key = "a"}).isOk());
}

TEST(GatherRounds, APartThatDoesNotFollowIsRefused) {
  GatherRounds rounds([](const auto&, const MemberMessage&) {}, [] {});
  rounds.enter({.epoch = Epoch{0}, .members = {Rank{0}, Rank{1}}, .self = Rank{0}});
  MemberMessage part{.kind = MemberMessageKind::kValue, .key = "a", .total = 4, .bytes = "ab"};
  EXPECT_TRUE(rounds.onMessage(Rank{1}, part).isOk());
  EXPECT_FALSE(rounds.onMessage(Rank{1}, part).isOk());
  part.offset = 2;
  part.bytes = "abc";
  EXPECT_FALSE(rounds.onMessage(Rank{1}, part).isOk());
}

TEST(GatherRounds, AValueThatIsTooLongIsRefused) {
  GatherRounds rounds([](const auto&, const MemberMessage&) {}, [] {});
  rounds.enter({.epoch = Epoch{0}, .members = {Rank{0}, Rank{1}}, .self = Rank{0}});
  rounds.begin("a", 4, [](const EpochView&) { return ""; }, [](const auto&) {});
  EXPECT_FALSE(
      rounds
          .onMessage(Rank{1},
                     {.kind = MemberMessageKind::kValue, .key = "a", .total = 5, .bytes = "ab"})
          .isOk());
}

// Members are lost at random moments. Whoever is left gets the same values in every round.
TEST(GatherRounds, LossesNeverGiveTwoMembersOtherValues) {
  const char* const wanted = std::getenv("SLUICE_SCHEDULES");
  const int64_t schedules = wanted != nullptr ? base::parseInteger(wanted).value() : int64_t{300};
  for (int64_t seed = 0; seed < schedules; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937 random(static_cast<uint32_t>(seed));
    const uint32_t members = 3 + random() % 3;
    RoundsWorld world(members);
    constexpr uint64_t kRounds = 3;
    std::map<Rank, uint64_t> begun;
    for (int turn = 0; turn < 400; ++turn) {
      const auto living = world.living();
      const Rank member = living[random() % living.size()];
      // A member begins the next round when it has the last one.
      if (begun[member] < kRounds && world.got(member).size() == begun[member] &&
          random() % 4 == 0) {
        world.begin(member, begun[member] % 2 == 0 ? "a" : "b");
        ++begun[member];
      }
      // Two are left at least: one alone agrees with itself.
      if (living.size() > 2 && random() % 30 == 0) {
        auto left = living;
        left.erase(left.begin() + static_cast<std::ptrdiff_t>(random() % left.size()));
        world.enter(left);
      }
      world.step(random);
    }
    for (const Rank member : world.living()) {
      while (begun[member] < kRounds && world.got(member).size() == begun[member]) {
        world.begin(member, begun[member] % 2 == 0 ? "a" : "b");
        ++begun[member];
        while (world.step(random)) {
        }
      }
    }
    for (int again = 0; again < 4; ++again) {
      for (const Rank member : world.living()) {
        if (begun[member] < kRounds && world.got(member).size() == begun[member]) {
          world.begin(member, begun[member] % 2 == 0 ? "a" : "b");
          ++begun[member];
        }
      }
      while (world.step(random)) {
      }
    }
    const auto& expected = world.got(world.living().front());
    ASSERT_EQ(expected.size(), kRounds);
    for (const Rank member : world.living()) {
      ASSERT_EQ(world.got(member), expected);
      ASSERT_TRUE(world.isIdle(member));
    }
  }
}

}  // namespace
}  // namespace sluice::membership
