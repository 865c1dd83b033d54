#include <sluice/join/membership/talk/member_channel.h>

#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sluice/base/testing/manual_loop.h>
#include <sluice/join/membership/testing/memory_membership.h>
#include <sluice/transport/fabric/loopback/loopback_fabric.h>

namespace sluice::membership {
namespace {

using namespace std::chrono_literals;

// Members of one job, on one loop. A member is lost when its fabric goes.
class MemberChannelTest : public testing::Test {
 protected:
  struct Watcher final : MemberChannel::Listener {
    void onEpoch(const EpochView& view) override { views.push_back(view); }
    void onEnd(const Status& why) override { end = why; }
    Step nextStep() const override { return Step{5}; }
    std::vector<EpochView> views;
    Status end;
  };
  struct Party {
    std::unique_ptr<MemberChannel> channel;
    Watcher watcher;
    std::vector<Result<GatherRounds::Values>> got;
  };

  ~MemberChannelTest() override {
    onLoop([this] { parties_.clear(); });
  }
  void onLoop(const Task& task) {
    loop_.post(task);
    loop_.runReady();
  }

  void start(uint32_t members, size_t fewest = 1) {
    EpochRecord first;
    for (uint32_t m = 0; m < members; ++m) {
      first.members.push_back(
          {.id = MemberId::random(), .host = fmt::format("host{}", m), .address = ""});
    }
    first.why = "the job begins";
    first.proposer = first.members.front().id;
    first.nonce = Nonce::random();
    first.run = first.nonce;
    hub_ = std::make_unique<fabric::LoopbackHub>(members);
    for (uint32_t m = 0; m < members; ++m) parties_.push_back(std::make_unique<Party>());
    onLoop([&] {  // in one task: nobody speaks before all are there
      for (uint32_t m = 0; m < members; ++m) {
        auto store = makeMemoryMembership(loop_, table_, {.job = "test", .key = key_});
        auto made = MemberChannel::start(
            loop_, std::move(store.membership), {first, 1}, Rank{m}, {.fewestMembers = fewest},
            [&](fabric::Receiver& receiver) {
              return Result<std::unique_ptr<fabric::Fabric>>(hub_->join(Rank{m}, loop_, receiver));
            });
        parties_[m]->channel = *std::move(made);
        parties_[m]->channel->add(parties_[m]->watcher);
      }
    });
    // Somebody has written the first epoch before.
    onLoop([&] {
      auto store = makeMemoryMembership(loop_, table_, {.job = "test", .key = key_});
      writer_ = std::move(store.membership);
      writer_->begin(first, 10s, [](const auto&) {});
    });
    loop_.advance(10ms);
    onLoop([this] { writer_.reset(); });
  }

  void gather(size_t m, const std::string& value) {
    onLoop([&] {
      parties_[m]->channel->gather(
          "mean", 0, [value](const EpochView&) { return value; }, 60s,
          [this, m](Result<GatherRounds::Values> values) { parties_[m]->got.push_back(values); });
    });
  }
  void lose(size_t m) {
    onLoop([&] { parties_[m]->channel.reset(); });
  }

  base::ManualLoop loop_;
  const std::shared_ptr<MemoryTable> table_ = std::make_shared<MemoryTable>();
  const secret::JobKey key_ = secret::JobKey::random();
  std::unique_ptr<fabric::LoopbackHub> hub_;
  std::unique_ptr<Membership> writer_;
  std::vector<std::unique_ptr<Party>> parties_;
};

TEST_F(MemberChannelTest, GatherGivesEverybodyTheSame) {
  start(3);
  for (size_t m = 0; m < 3; ++m) gather(m, fmt::format("v{}", m));
  loop_.advance(10ms);
  for (const auto& party : parties_) {
    ASSERT_EQ(party->got.size(), 1U);
    EXPECT_EQ(*party->got[0], (GatherRounds::Values{"v0", "v1", "v2"}));
  }
}

TEST_F(MemberChannelTest, ALostMemberLeavesTheEpochAndTheGathering) {
  start(3);
  gather(0, "v0");
  gather(2, "v2");
  lose(1);
  loop_.advance(2s);
  for (const size_t m : {0, 2}) {
    ASSERT_EQ(parties_[m]->watcher.views.size(), 1U);
    EXPECT_EQ(parties_[m]->watcher.views[0].members, (std::vector{Rank{0}, Rank{2}}));
    ASSERT_EQ(parties_[m]->got.size(), 1U);
    EXPECT_EQ(*parties_[m]->got[0], (GatherRounds::Values{"v0", "v2"}));
  }
  EXPECT_EQ(parties_[2]->channel->view().self, Rank{1});
}

TEST_F(MemberChannelTest, TheFirstMemberMayBeLost) {
  start(3);
  lose(0);
  loop_.advance(2s);
  lose(1);
  loop_.advance(2s);
  EXPECT_EQ(parties_[2]->channel->view().members, std::vector{Rank{2}});
  gather(2, "alone");
  loop_.advance(10ms);
  ASSERT_EQ(parties_[2]->got.size(), 1U);
  EXPECT_EQ(*parties_[2]->got[0], GatherRounds::Values{"alone"});
}

TEST_F(MemberChannelTest, TooFewMembersEndTheJobByName) {
  start(2, /*fewest=*/2);
  lose(1);
  loop_.advance(5s);
  EXPECT_EQ(parties_[0]->watcher.end.code(), Code::kPeerLost);
  EXPECT_NE(parties_[0]->watcher.end.message().find("host1"), std::string::npos);
  gather(0, "late");
  loop_.advance(10ms);
  ASSERT_EQ(parties_[0]->got.size(), 1U);
  EXPECT_FALSE(parties_[0]->got[0].isOk());
}

TEST_F(MemberChannelTest, AMeetingEndsWithItsEpoch) {
  start(2);
  std::vector<Status> met;
  onLoop([&] {
    parties_[0]->channel->meet("fabric", "here",
                               [&](const auto& values) { met.push_back(values.status()); });
  });
  lose(1);
  loop_.advance(2s);
  ASSERT_EQ(met.size(), 1U);
  EXPECT_EQ(met[0].code(), Code::kCancelled);
}

TEST_F(MemberChannelTest, AMemberThatIsSuspectedForLongIsGivenUp) {
  start(3);
  onLoop([&] {
    parties_[0]->channel->suspect(Epoch{0}, Rank{2}, {Code::kPeerLost, "a broken connection"});
  });
  loop_.advance(10s);
  EXPECT_EQ(parties_[1]->channel->view().members, (std::vector{Rank{0}, Rank{1}}));
}

TEST_F(MemberChannelTest, AMemberIsSuspectedNoLongerBecauseThisOneWasStopped) {
  start(3);
  onLoop([&] {
    parties_[0]->channel->suspect(Epoch{0}, Rank{2}, {Code::kPeerLost, "a broken connection"});
  });
  loop_.stall(10s);
  loop_.advance(1s);
  EXPECT_TRUE(parties_[1]->watcher.views.empty());
  loop_.advance(10s);
  EXPECT_EQ(parties_[1]->channel->view().members, (std::vector{Rank{0}, Rank{1}}));
}

TEST_F(MemberChannelTest, ANoteReachesTheOthers) {
  start(2);
  std::string heard;
  onLoop([&] {
    parties_[1]->channel->whenNoted("end", [&](const std::string& note) { heard = note; });
    parties_[0]->channel->leaveNote("end", "done");
  });
  loop_.advance(10ms);
  EXPECT_EQ(heard, "done");
}

TEST_F(MemberChannelTest, WhoLeavesWaitsUntilOthersHaveTheirValues) {
  start(2);
  gather(0, "a");
  gather(1, "b");
  bool hasLeft = false;
  onLoop([&] { parties_[0]->channel->leave(1s, [&] { hasLeft = true; }); });
  loop_.advance(2s);
  EXPECT_TRUE(hasLeft);
  EXPECT_EQ(parties_[1]->got.size(), 1U);
}

TEST_F(MemberChannelTest, AMemberThatGoesWhileItLeavesIsToldSo) {
  start(2);
  table_->setUnavailable("it is away");
  bool hasLeft = false;
  onLoop([&] { parties_[0]->channel->leave(1s, [&] { hasLeft = true; }); });
  loop_.advance(100ms);
  EXPECT_FALSE(hasLeft);
  lose(0);
  EXPECT_TRUE(hasLeft);
}

}  // namespace
}  // namespace sluice::membership
