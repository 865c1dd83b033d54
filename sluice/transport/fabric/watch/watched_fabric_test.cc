#include <sluice/transport/fabric/watch/watched_fabric.h>

#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sluice/base/testing/manual_loop.h>
#include <sluice/transport/fabric/loopback/loopback_fabric.h>
#include <sluice/transport/fabric/testing/contract_suite.h>

namespace sluice::fabric {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr LivenessOptions kOptions{.interval = 250ms, .silenceLimit = 2s, .busyLimit = 60s};

// A pulse by which the other ranks say what the test sets.
class ScriptedPulse final : public Pulse {
 public:
  void exchangeWith(Rank peer) override { asked.insert(peer); }
  std::optional<Word> lastWord(Rank peer) const override {
    const auto found = words.find(peer);
    return found == words.end() ? std::nullopt : std::optional(found->second);
  }

  std::set<Rank> asked;
  std::map<Rank, Word> words;
};

// A rank whose loop the test steps: one that is not stepped is silent, as behind a cut link.
class SteppedRank final : public Receiver {
 public:
  SteppedRank(LoopbackHub& hub, Rank rank) {
    fabric_ = WatchedFabric::make(
                  loop_, kOptions, *this,
                  [&](Receiver& receiver) {
                    return Result<std::unique_ptr<NodeFabric>>(hub.join(rank, loop_, receiver));
                  },
                  &pulse)
                  .value();
  }
  ~SteppedRank() override {
    loop_.post([this] { fabric_.reset(); });
    loop_.runReady();
  }

  Result<Landing> onMessage(Rank, Lane, const wire::Header&) override {
    if (putsOff) return Landing::later();
    return Landing{.buffer = {}, .done = [](const Status&) {}};
  }
  void onPeerLost(Rank from, const Status& why) override {
    lost.push_back(from);
    reasons.push_back(why.message());
    EXPECT_EQ(why.code(), Code::kPeerLost);
  }
  void onPeerLeft(Rank from) override { left.push_back(from); }

  void send(Rank to, const Message& message = {}, Lane lane = Lane::kBulk) {
    fabric_->send(to, lane, message, {}, [](const Status&) {});
  }
  base::ManualLoop& loop() { return loop_; }
  WatchedFabric& fabric() { return *fabric_; }
  std::optional<ClockOffset> clockOffset(Rank peer) {
    std::optional<ClockOffset> offset;
    loop_.post([&] { offset = fabric_->clockOffset(peer); });
    loop_.runReady();
    return offset;
  }

  ScriptedPulse pulse;
  bool putsOff = false;
  std::vector<Rank> lost;
  std::vector<std::string> reasons;
  std::vector<Rank> left;

 private:
  base::ManualLoop loop_;
  std::unique_ptr<WatchedFabric> fabric_;
};

class WatchedFabricTest : public testing::Test {
 protected:
  explicit WatchedFabricTest(uint32_t world = 4) : hub_(world) {
    for (uint32_t r = 0; r < world; ++r)
      ranks_.push_back(std::make_unique<SteppedRank>(hub_, Rank{r}));
  }

  SteppedRank& rank(uint32_t r) { return *ranks_[r]; }

  // Time goes on for these ranks, in small steps, all together.
  void run(const std::vector<uint32_t>& who, Duration time) {
    for (Duration gone{}; gone < time; gone += kStep) {
      for (const uint32_t r : who) rank(r).loop().advance(kStep);
      settle(who);
    }
  }
  // The same for rank 0, to which rank r says all the while that its loop is busy, since `begin`.
  void runWhileBusy(uint32_t r, Duration time, TimePoint begin) {
    for (Duration gone{}; gone < time; gone += kStep) {
      const TimePoint now = rank(0).loop().now();
      rank(0).pulse.words[Rank{r}] = {now, now - begin};
      run({0}, kStep);
    }
  }
  void settle(const std::vector<uint32_t>& who) {
    bool ran = true;
    while (ran) {
      ran = false;
      for (const uint32_t r : who) ran = rank(r).loop().runReady() > 0 || ran;
    }
  }
  void everybodyTalks() {
    for (uint32_t a = 0; a < ranks_.size(); ++a) {
      for (uint32_t b = 0; b < ranks_.size(); ++b) {
        if (a != b) rank(a).send(Rank{b});
      }
    }
    settle({0, 1, 2, 3});
  }

  static constexpr Duration kStep = 10ms;
  LoopbackHub hub_;
  std::vector<std::unique_ptr<SteppedRank>> ranks_;
};

TEST_F(WatchedFabricTest, NobodyIsLostWhileAllLive) {
  everybodyTalks();
  run({0, 1, 2, 3}, 60s);
  for (const auto& each : ranks_) EXPECT_THAT(each->lost, IsEmpty());
}

TEST_F(WatchedFabricTest, HeartbeatsGoOnlyWhereThereIsTalk) {
  rank(0).send(Rank{1});
  run({0, 1, 2, 3}, 10s);
  // One message and one heartbeat every interval; the answers likewise; nothing between the others.
  EXPECT_EQ(rank(0).fabric().counters().messagesSent, 41U);
  EXPECT_EQ(rank(1).fabric().counters().messagesSent, 40U);
  EXPECT_EQ(rank(2).fabric().counters().messagesSent, 0U);
  EXPECT_EQ(rank(3).fabric().counters().messagesSent, 0U);
}

TEST_F(WatchedFabricTest, SilenceIsKnownInTimeAndNamed) {
  Message message;
  message.step = Step{4};
  message.slice = SliceId{17};
  message.stage = Stage::kPush;
  rank(2).send(Rank{0}, message);
  run({0, 2}, 5s);
  const TimePoint begin = rank(0).loop().now();
  run({0}, 1700ms);  // from here on rank 2 is silent
  EXPECT_THAT(rank(0).lost, IsEmpty());
  while (rank(0).lost.empty() && rank(0).loop().now() - begin < 5s) run({0}, kStep);
  EXPECT_LE(rank(0).loop().now() - begin, 2s + kStep);
  ASSERT_THAT(rank(0).lost, ElementsAre(Rank{2}));
  EXPECT_EQ(
      rank(0).reasons.front(),
      "rank 2 is lost: nothing heard for 2.0 s (silence-limit), last: push of slice 17 of step 4");
}

TEST_F(WatchedFabricTest, ALossIsToldOnceThoughAllNoticeIt) {
  everybodyTalks();
  run({0, 1, 2, 3}, 1s);
  run({0, 1, 3}, 3s);
  for (const uint32_t r : {0U, 1U, 3U}) EXPECT_THAT(rank(r).lost, ElementsAre(Rank{2})) << r;
}

TEST_F(WatchedFabricTest, ASecondsPauseIsForgiven) {
  everybodyTalks();
  for (int i = 0; i < 5; ++i) {
    run({0, 1, 2, 3}, 500ms);
    run({0, 1, 3}, 1s);
    rank(2).loop().stall(1s);
  }
  run({0, 1, 2, 3}, 5s);
  for (const auto& each : ranks_) EXPECT_THAT(each->lost, IsEmpty());
}

TEST_F(WatchedFabricTest, OurOwnStopCountsAgainstNobody) {
  everybodyTalks();
  run({0, 1, 2, 3}, 1s);
  // Rank 0 wakes after an hour, finds its timer due and what the others sent unread. That they
  // would have given up on it meanwhile is another matter: here only its own judgement is looked
  // at.
  rank(0).loop().stall(1h);
  rank(0).loop().runReady();
  EXPECT_THAT(rank(0).lost, IsEmpty());
  run({0, 1, 2, 3}, 10s);
  for (const auto& each : ranks_) EXPECT_THAT(each->lost, IsEmpty());
}

TEST_F(WatchedFabricTest, ThoseWhoDoNotTalkToItLearnOfALoss) {
  // 0 - 1 - 2 - 3 in a line.
  for (const uint32_t r : {0U, 1U, 2U}) rank(r).send(Rank{r + 1});
  run({0, 1, 2, 3}, 1s);
  run({0, 1, 2}, 3500ms);
  for (const uint32_t r : {0U, 1U, 2U}) EXPECT_THAT(rank(r).lost, ElementsAre(Rank{3})) << r;
  EXPECT_EQ(
      rank(0).reasons.front(),
      "rank 3 is lost: rank 2 reports: nothing heard for 2.0 s (silence-limit), last: a heartbeat");
}

TEST_F(WatchedFabricTest, WhoIsHeardIsNotLostOnHearsay) {
  everybodyTalks();
  run({0, 1, 2, 3}, 1s);
  rank(0).fabric().giveUp(Rank{1}, Status(Code::kPeerLost, "the path is broken"));
  run({0, 1, 2, 3}, 10s);
  EXPECT_THAT(rank(0).lost, ElementsAre(Rank{1}));
  EXPECT_THAT(rank(1).lost, ElementsAre(Rank{0}));
  EXPECT_THAT(rank(2).lost, IsEmpty());
  EXPECT_THAT(rank(3).lost, IsEmpty());
}

TEST_F(WatchedFabricTest, ANoticeIsBelievedOnlyIfTheLostRankDoesNotAnswer) {
  everybodyTalks();
  run({0, 1, 2, 3}, 1s);
  // Rank 2 pauses for 0.9 s; in the middle of it rank 0 says that it has lost rank 2.
  run({0, 1, 3}, 600ms);
  rank(0).fabric().giveUp(Rank{2}, Status(Code::kPeerLost, "the path is broken"));
  run({0, 1, 3}, 300ms);
  rank(2).loop().stall(900ms);
  run({0, 1, 2, 3}, 10s);
  EXPECT_THAT(rank(0).lost, ElementsAre(Rank{2}));
  EXPECT_THAT(rank(1).lost, IsEmpty());
  EXPECT_THAT(rank(3).lost, IsEmpty());
}

TEST_F(WatchedFabricTest, ANoticeAboutARankThatWeDoNotTalkToIsBelievedAtOnce) {
  for (const uint32_t r : {0U, 1U, 2U}) rank(r).send(Rank{r + 1});  // in a line
  run({0, 1, 2, 3}, 1s);
  rank(2).fabric().giveUp(Rank{3}, Status(Code::kPeerLost, "the path is broken"));
  settle({0, 1, 2});
  for (const uint32_t r : {0U, 1U, 2U}) EXPECT_THAT(rank(r).lost, ElementsAre(Rank{3})) << r;
}

TEST_F(WatchedFabricTest, ANoticeAboutABusyRankIsNotBelieved) {
  everybodyTalks();
  run({0, 1, 2, 3}, 1s);
  const TimePoint begin = rank(0).loop().now();
  runWhileBusy(2, 1s, begin);
  for (const uint32_t r : {1U, 3U}) rank(r).loop().stall(1s);
  settle({0, 1, 3});
  rank(1).fabric().giveUp(Rank{2}, Status(Code::kPeerLost, "the path is broken"));
  settle({0, 1, 3});
  runWhileBusy(2, 1500ms, begin);
  EXPECT_THAT(rank(0).lost, Not(testing::Contains(Rank{2})));
}

TEST_F(WatchedFabricTest, WhoLeavesInGoodOrderIsNotMissed) {
  everybodyTalks();
  rank(3).fabric().close([](const Status&) {});
  run({0, 1, 2, 3}, 10s);
  for (const uint32_t r : {0U, 1U, 2U}) {
    EXPECT_THAT(rank(r).left, ElementsAre(Rank{3})) << r;
    EXPECT_THAT(rank(r).lost, IsEmpty()) << r;
  }
}

TEST_F(WatchedFabricTest, AControlLaneThatWePutOffIsNotSilence) {
  rank(1).putsOff = true;
  rank(0).send(Rank{1}, {}, Lane::kControl);
  run({0, 1}, 10s);
  EXPECT_THAT(rank(1).lost, IsEmpty());
  rank(1).putsOff = false;
  rank(1).fabric().resume(Rank{0}, Lane::kControl);
  run({0, 1}, 10s);
  EXPECT_THAT(rank(1).lost, IsEmpty());
  run({1}, 3s);
  EXPECT_THAT(rank(1).lost, ElementsAre(Rank{0}));
}

TEST_F(WatchedFabricTest, AControlLaneThatWePutOffHidesNoDeath) {
  rank(1).putsOff = true;
  rank(0).send(Rank{1}, {}, Lane::kControl);
  run({0, 1}, 1s);
  rank(1).pulse.words[Rank{0}] = {rank(1).loop().now(), 0s};  // the last word of its pulse
  run({1}, 1900ms);
  EXPECT_THAT(rank(1).lost, IsEmpty());
  run({1}, 300ms);
  EXPECT_THAT(rank(1).lost, ElementsAre(Rank{0}));
}

TEST_F(WatchedFabricTest, AControlLaneThatWePutOffIsExcusedUpToTheBusyLimitWithoutAPulse) {
  rank(1).putsOff = true;
  rank(0).send(Rank{1}, {}, Lane::kControl);
  run({0, 1}, 1s);
  run({1}, 59s);
  EXPECT_THAT(rank(1).lost, IsEmpty());
  run({1}, 4s);
  EXPECT_THAT(rank(1).lost, ElementsAre(Rank{0}));
}

TEST_F(WatchedFabricTest, ARankThatSaysThatItIsBusyIsWaitedFor) {
  rank(0).send(Rank{1});
  run({0, 1}, 1s);
  EXPECT_THAT(rank(0).pulse.asked, ElementsAre(Rank{1}));
  EXPECT_THAT(rank(1).pulse.asked, ElementsAre(Rank{0}));
  runWhileBusy(1, 59s, rank(0).loop().now());
  EXPECT_THAT(rank(0).lost, IsEmpty());
  rank(0).pulse.words[Rank{1}].busy = 0s;  // its loop turns again, and sends heartbeats
  rank(1).loop().stall(59s);
  run({0, 1}, 10s);
  EXPECT_THAT(rank(0).lost, IsEmpty());
}

TEST_F(WatchedFabricTest, ABusyRankWhosePulseEndsIsLostAfterTheSilenceLimit) {
  rank(0).send(Rank{1});
  run({0, 1}, 1s);
  runWhileBusy(1, 30s, rank(0).loop().now());
  run({0}, 1900ms);  // as if stopped: it still says that it was busy, a while ago
  EXPECT_THAT(rank(0).lost, IsEmpty());
  run({0}, 200ms);
  ASSERT_THAT(rank(0).lost, ElementsAre(Rank{1}));
  EXPECT_EQ(rank(0).reasons.front(),
            "rank 1 is lost: nothing heard for 2.0 s (silence-limit), last: a heartbeat");
}

TEST_F(WatchedFabricTest, BusyHasALimitAndANameOfItsOwn) {
  rank(0).send(Rank{1});
  run({0, 1}, 1s);
  const TimePoint begin = rank(0).loop().now();
  runWhileBusy(1, 59s, begin);
  EXPECT_THAT(rank(0).lost, IsEmpty());
  runWhileBusy(1, 1500ms, begin);
  ASSERT_THAT(rank(0).lost, ElementsAre(Rank{1}));
  EXPECT_THAT(rank(0).reasons.front(), HasSubstr("rank 1 is lost: it is busy: its loop has not "
                                                 "turned for 60.2 s, longer than busy-limit"));
}

TEST_F(WatchedFabricTest, ALoopThatTurnsExcusesNoSilence) {
  rank(0).send(Rank{1});
  run({0, 1}, 1s);
  for (Duration gone{}; gone < 3s;
       gone += kStep) {  // the fabric's path is broken, the pulse's is not
    rank(0).pulse.words[Rank{1}] = {rank(0).loop().now(), 100ms};
    run({0}, kStep);
  }
  EXPECT_THAT(rank(0).lost, ElementsAre(Rank{1}));
}

TEST_F(WatchedFabricTest, NothingEverHeardIsSaid) {
  rank(0).send(Rank{1});
  run({0}, 3s);
  ASSERT_THAT(rank(0).lost, ElementsAre(Rank{1}));
  EXPECT_THAT(rank(0).reasons.front(),
              HasSubstr("nothing heard for 2.0 s (silence-limit), last: nothing at all"));
}

TEST_F(WatchedFabricTest, KnowsHowFarTheOthersClockIs) {
  rank(1).loop().advance(7s);  // rank 1's clock is ahead
  EXPECT_EQ(rank(0).clockOffset(Rank{1}), std::nullopt);
  rank(0).send(Rank{1});
  run({0, 1}, 2s);
  ASSERT_TRUE(rank(0).clockOffset(Rank{1}));
  EXPECT_LE(std::chrono::abs(rank(0).clockOffset(Rank{1})->offset - 7s), kStep);
  EXPECT_LE(std::chrono::abs(rank(1).clockOffset(Rank{0})->offset + 7s), kStep);
}

// The wrapper must not break what the engine inside promises. Heartbeats are rare here: the suite
// counts messages.
class WatchedLoopback final : public contract::Engine {
 public:
  explicit WatchedLoopback(size_t worldSize) : world_(worldSize), hub_(worldSize) {}
  contract::World& world() override { return world_; }
  std::unique_ptr<Fabric> make(Rank rank, Receiver& receiver) override {
    net::EpollLoop& loop = world_.loop(index(rank));
    return WatchedFabric::make(loop, {.interval = 1h, .silenceLimit = 3h}, receiver,
                               [&](Receiver& watchman) {
                                 return Result<std::unique_ptr<NodeFabric>>(
                                     hub_.join(rank, loop, watchman, {.closeDeadline = 1s}));
                               })
        .value();
  }

 private:
  contract::ThreadWorld world_;
  LoopbackHub hub_;
};

TEST(LivenessOptions, RefusesWhatOneLostPacketCouldReach) {
  EXPECT_TRUE((LivenessOptions{}.check().isOk()));
  EXPECT_FALSE((LivenessOptions{.interval = 1s, .silenceLimit = 2s}.check().isOk()));
  EXPECT_FALSE((LivenessOptions{.interval = 0s, .silenceLimit = 2s}.check().isOk()));
}

TEST(LivenessOptions, HasTheDefaultsThatTheConfigurationSays) {
  const auto options = readLivenessOptions(base::Config());
  ASSERT_TRUE(options.isOk());
  EXPECT_EQ(options->interval, LivenessOptions{}.interval);
  EXPECT_EQ(options->silenceLimit, LivenessOptions{}.silenceLimit);
  EXPECT_EQ(options->busyLimit, LivenessOptions{}.busyLimit);
}

}  // namespace

namespace contract {
INSTANTIATE_TEST_SUITE_P(Watched, FabricContract,
                         testing::Values(EngineCase{
                             "loopback",
                             [](size_t worldSize) -> std::unique_ptr<Engine> {
                               return std::make_unique<WatchedLoopback>(worldSize);
                             }}),
                         caseName);
}  // namespace contract
}  // namespace sluice::fabric
