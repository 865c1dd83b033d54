#include <sluice/data/gate/gates.h>

#include <atomic>
#include <optional>
#include <thread>

#include <gtest/gtest.h>

namespace sluice::gate {
namespace {

using namespace std::chrono_literals;

constexpr TensorId kConv{0};
constexpr TensorId kFc{1};

class CountWaits final : public StageObserver {
 public:
  void onStage(const StageEvent&) override {}
  void onWait(const WaitEvent& event) override {
    EXPECT_LE(event.from, event.to);
    ++waits;
  }
  std::atomic<int> waits{0};
};

Gates makeGates(
    WaitOptions options = {1min, 1min}, Gates::OnStall onStall = [](auto...) {},
    StageObserver* observer = nullptr) {
  return {{"conv", "fc"}, options, std::move(onStall), observer};
}

TEST(Gates, StartOpenAndOpenAgainWithTheResultOfTheirStep) {
  Gates gates = makeGates();
  EXPECT_TRUE(gates.isOpen(kConv));
  EXPECT_TRUE(gates.wait(kConv).isOk());
  for (uint64_t step = 0; step < 3; ++step) {
    EXPECT_EQ(gates.close(kConv).value(), Step{step});
    EXPECT_FALSE(gates.isOpen(kConv));
    EXPECT_TRUE(gates.isOpen(kFc));
    gates.open(kConv, Step{step});
    EXPECT_TRUE(gates.wait(kConv).isOk());
  }
}

TEST(Gates, AWaitEndsWhenTheGateOpensAndIsObserved) {
  CountWaits observer;
  Step step{};
  Gates* opened = nullptr;
  // The stall callback runs in the middle of the wait, so the gate is sure to open while somebody
  // waits.
  Gates gates = makeGates({1min, 1ms}, [&](auto...) { opened->open(kFc, step); }, &observer);
  opened = &gates;
  step = gates.close(kFc).value();
  EXPECT_TRUE(gates.waitAll().isOk());
  EXPECT_EQ(observer.waits, 1);
}

TEST(Gates, AnErrorReachesEveryWaitNamesItAndSticks) {
  Gates gates = makeGates();
  (void)gates.close(kConv);
  std::thread loop([&] { gates.fail({Code::kPeerLost, "rank 2 is gone"}); });
  EXPECT_EQ(gates.wait(kConv).toString(),
            "peer lost: waiting for 'conv' of step 0: rank 2 is gone");
  loop.join();
  gates.fail({Code::kPeerLost, "an echo"});
  EXPECT_NE(gates.wait(kConv).message().find("rank 2"), std::string::npos);
  EXPECT_FALSE(gates.isOpen(kFc));
}

TEST(Gates, AStallIsToldAndTheWaitHasAnEnd) {
  std::atomic<int> stalls{0};
  Gates gates = makeGates({50ms, 10ms}, [&](TensorId tensor, Step step, Duration waited) {
    EXPECT_EQ(tensor, kConv);
    EXPECT_EQ(step, Step{0});
    EXPECT_GE(waited, 10ms);
    ++stalls;
  });
  (void)gates.close(kConv);
  EXPECT_EQ(gates.wait(kConv).toString(),
            "timeout: 'conv' of step 0 did not come within 50ms (wait-timeout)");
  EXPECT_GE(stalls, 1);
}

TEST(Gates, AWaitTellsTheThreadAndATimeoutWhereTheOthersAre) {
  const base::RealClock clock;
  base::TrainingThread thread(clock);
  std::optional<base::Whereabouts> seen;
  Gates gates =
      makeGates({.atMost = 50ms,
                 .stallAfter = 10ms,
                 .otherRanks = [] { return "rank 1 has been in sluice.mean() for 9.0 s"; },
                 .thread = &thread},
                [&](TensorId, Step, Duration) { seen = thread.now(); });
  gates.open(kConv, gates.close(kConv).value());
  EXPECT_TRUE(gates.wait(kConv).isOk());
  EXPECT_EQ(thread.now().doing, base::Doing::kUserCode);  // an open gate is no wait
  (void)gates.close(kConv);
  EXPECT_EQ(gates.wait(kConv).message(),
            "'conv' of step 1 did not come within 50ms (wait-timeout): rank 1 has been in "
            "sluice.mean() for 9.0 s");
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->doing, base::Doing::kGate);
  EXPECT_EQ(seen->step, 1);
  EXPECT_EQ(thread.now().doing, base::Doing::kUserCode);
}

TEST(Gates, AnInterruptionEndsThatWaitOnly) {
  int asked = 0;
  Gates gates = makeGates({.atMost = 1min, .stallAfter = 1min, .interruption = [&]() -> Status {
                             return ++asked < 3 ? Status() : Status(Code::kCancelled, "Ctrl-C");
                           }});
  const Step step = gates.close(kConv).value();
  EXPECT_EQ(gates.wait(kConv).toString(), "cancelled: Ctrl-C");
  EXPECT_EQ(asked, 3);
  gates.open(kConv, step);
  EXPECT_TRUE(gates.wait(kConv).isOk());
}

TEST(Gates, AnEndLetsEarlierStepsThrough) {
  Gates gates = makeGates();
  const Step first = gates.close(kConv).value();
  gates.endAfter(1, {Code::kPeerLost, "rank 2 has ended"});
  gates.endAfter(0, {Code::kPeerLost, "an echo"});
  gates.open(kConv, first);
  EXPECT_TRUE(gates.waitAll().isOk());
  EXPECT_EQ(gates.stepsBegun(), 1);
  (void)gates.close(kConv);
  EXPECT_EQ(gates.wait(kConv).message(), "waiting for 'conv' of step 1: rank 2 has ended");
  EXPECT_TRUE(gates.wait(kFc).isOk());
}

TEST(Gates, KnowWhetherTheLastStepHadAResult) {
  Gates gates = makeGates();
  EXPECT_FALSE(gates.isEmpty(kConv));
  gates.openEmpty(kConv, gates.close(kConv).value());
  EXPECT_TRUE(gates.isOpen(kConv));
  EXPECT_TRUE(gates.isEmpty(kConv));
  gates.open(kConv, gates.close(kConv).value());
  EXPECT_FALSE(gates.isEmpty(kConv));
}

TEST(Gates, SayWhatIsClosed) {
  Gates gates = makeGates();
  EXPECT_EQ(gates.describeClosed(), "nothing");
  (void)gates.close(kConv);
  (void)gates.close(kFc);
  EXPECT_EQ(gates.describeClosed(), "'conv' of step 0, 'fc' of step 0");
}

TEST(Gates, ASecondGradientBeforeTheFirstOnesResultIsRefused) {
  Gates gates = makeGates();
  const Step step = gates.close(kConv).value();
  const auto second = gates.close(kConv);
  EXPECT_EQ(second.status().code(), Code::kInvalidArgument);
  EXPECT_NE(second.status().message().find("conv"), std::string::npos);
  gates.open(kConv, step);
  EXPECT_EQ(gates.close(kConv).value(), next(step));
}

TEST(Gates, CallBackOnceWhenOneOpensOrFails) {
  Gates gates = makeGates();
  std::vector<std::string> seen;
  const auto note = [&](const std::string& name) {
    return [&seen, name](const Status& status) { seen.push_back(name + " " + status.message()); };
  };
  gates.whenOpen(kConv, note("open already"));
  EXPECT_EQ(seen, (std::vector<std::string>{"open already "}));
  ASSERT_TRUE(gates.close(kConv).isOk());
  ASSERT_TRUE(gates.close(kFc).isOk());
  gates.whenOpen(kConv, note("conv"));
  gates.whenOpen(kFc, note("fc"));
  EXPECT_EQ(seen.size(), 1U);
  gates.open(kConv, Step{0});
  EXPECT_EQ(seen.back(), "conv ");
  gates.fail(Status(Code::kPeerLost, "rank 3 is lost"));
  EXPECT_EQ(seen.back(), "fc rank 3 is lost");
  EXPECT_EQ(seen.size(), 3U);
}

TEST(Gates, StartAtALaterStepInAJobThatGoesOn) {
  Gates gates = makeGates();
  gates.startAt(kConv, Step{7});
  EXPECT_TRUE(gates.isOpen(kConv));
  EXPECT_EQ(gates.close(kConv).value(), Step{7});
  EXPECT_EQ(gates.close(kFc).value(), Step{0});
  gates.open(kConv, Step{7});
  EXPECT_TRUE(gates.isOpen(kConv));
}

}  // namespace
}  // namespace sluice::gate
