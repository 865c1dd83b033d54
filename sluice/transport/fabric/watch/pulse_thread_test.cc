#include <sluice/transport/fabric/watch/pulse_thread.h>

#include <future>
#include <thread>

#include <gtest/gtest.h>

#include <sluice/transport/fabric/loopback/loopback_fabric.h>

namespace sluice::fabric {
namespace {

using namespace std::chrono_literals;

constexpr LivenessOptions kQuick{.interval = 10ms, .silenceLimit = 50ms, .busyLimit = 1min};
constexpr auto kPatience = 30s;

// A process: its work loop, and the pulse that tells of it.
struct PulsingProcess {
  PulsingProcess(LoopbackHub& hub, Rank rank)
      : pulse(PulseThread::start(
                  kQuick, work.loop(), 2,
                  [&](net::EpollLoop& loop, Receiver& receiver) {
                    return Result<std::unique_ptr<NodeFabric>>(hub.join(rank, loop, receiver));
                  },
                  &training)
                  .value()) {}

  net::LoopThread work{"work"};
  base::RealClock clock;
  base::TrainingThread training{clock};
  std::unique_ptr<PulseThread> pulse;
};

template <typename Holds>
bool comesTrue(Holds&& holds) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

class PulseThreadTest : public testing::Test {
 protected:
  LoopbackHub hub_{2};
  PulsingProcess ours_{hub_, Rank{0}};
  PulsingProcess theirs_{hub_, Rank{1}};
};

TEST_F(PulseThreadTest, SaysHowBusyTheLoopIsAndWhenItTurnsAgain) {
  EXPECT_FALSE(ours_.pulse->lastWord(Rank{1}));
  ours_.pulse->exchangeWith(Rank{1});
  ASSERT_TRUE(comesTrue([&] { return ours_.pulse->lastWord(Rank{1}).has_value(); }));

  std::promise<void> enough;
  theirs_.work.loop().post([end = enough.get_future().share()] { end.wait(); });
  EXPECT_TRUE(comesTrue([&] { return ours_.pulse->lastWord(Rank{1})->busy >= 300ms; }));
  const auto before = ours_.pulse->lastWord(Rank{1});
  EXPECT_TRUE(comesTrue([&] { return ours_.pulse->lastWord(Rank{1})->heard > before->heard; }));
  enough.set_value();
  EXPECT_TRUE(comesTrue([&] { return ours_.pulse->lastWord(Rank{1})->busy < 300ms; }));
}

TEST_F(PulseThreadTest, SaysWhatTheTrainingThreadDoes) {
  ours_.pulse->exchangeWith(Rank{1});
  const auto isThere = [&](base::Doing doing, uint64_t step) {
    const auto word = ours_.pulse->lastWord(Rank{1});
    return word && word->training.doing == doing && word->training.step == step;
  };
  EXPECT_TRUE(comesTrue([&] { return isThere(base::Doing::kUserCode, 0); }));
  {
    const base::TrainingThread::Call forward(&theirs_.training, base::Doing::kForward, 7);
    EXPECT_TRUE(comesTrue([&] { return isThere(base::Doing::kForward, 7); }));
    EXPECT_TRUE(comesTrue([&] { return ours_.pulse->lastWord(Rank{1})->training.since > 0s; }));
  }
  EXPECT_TRUE(comesTrue([&] { return isThere(base::Doing::kUserCode, 7); }));
}

TEST_F(PulseThreadTest, ARankThatIsToldAnswersThoughItsOwnLoopIsBusyFromTheBeginning) {
  std::promise<void> enough;
  theirs_.work.loop().post([end = enough.get_future().share()] { end.wait(); });
  ours_.pulse->exchangeWith(Rank{1});  // theirs never calls exchangeWith()
  EXPECT_TRUE(comesTrue([&] {
    const auto word = ours_.pulse->lastWord(Rank{1});
    return word && word->busy >= 100ms;
  }));
  enough.set_value();
}

TEST_F(PulseThreadTest, ARankThatHasLeftOrIsLostHasNoWord) {
  ours_.pulse->exchangeWith(Rank{1});
  ASSERT_TRUE(comesTrue([&] { return ours_.pulse->lastWord(Rank{1}).has_value(); }));
  theirs_.pulse.reset();
  EXPECT_TRUE(comesTrue([&] { return !ours_.pulse->lastWord(Rank{1}).has_value(); }));
  ours_.pulse->exchangeWith(Rank{1});  // is of no use any more, and does no harm
}

}  // namespace
}  // namespace sluice::fabric
