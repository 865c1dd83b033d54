// flight_cost [STEPS]: measures the CPU time that the flight recorder takes of a step. One rank of
// four reports the stages of a model like ResNet-50 under the algorithm `sluice`, as a training does
// it, with the recorder and without; nothing is sent. Divide the difference by the CPU time of a step
// (`sluice bench replay --profile resnet50 --algorithms sluice --json -`).
#include <algorithm>
#include <cstdlib>
#include <vector>

#include <fmt/format.h>

#include <sluice/base/cpu_time.h>
#include <sluice/base/net/epoll_loop.h>
#include <sluice/data/plan/plan.h>
#include <sluice/observe/flight/flight_recorder.h>
#include <sluice/session/flight_log.h>

namespace sluice {
namespace {

constexpr Rank kSelf{0};
constexpr uint32_t kWorld = 4;
constexpr uint64_t kTensors = 161;
constexpr uint64_t kElements = 25'557'032;

plan::Plan resnetLike() {
  plan::PlanSpec spec{.strategy = "sluice"};
  for (uint64_t t = 0; t < kTensors; ++t)
    spec.model.tensors.push_back(
        {fmt::format("layer{}.weight", t), kElements / kTensors, DType::kF32});
  spec.roles = *plan::parseRoles("all", kWorld);
  spec.slicing.sliceElements = 12'500;
  return *plan::Plan::make(std::move(spec));
}

// Reports all that rank 0 sees of a step, and returns how often it has reported.
uint64_t reportStep(const plan::Plan& plan, const plan::Stages& stages, StageObserver* observer,
                    Step step) {
  uint64_t count = 0;
  const auto enter = [&](Stage stage, const Slice& slice, Rank peer) {
    stages.enter(stage, step, slice, peer);
    ++count;
  };
  const base::RealClock clock;
  for (const Slice& slice : plan.slices()) {
    enter(Stage::kReady, slice, kSelf);
    if (slice.server == kSelf) {
      for (uint32_t r = 0; r < kWorld; ++r) enter(Stage::kCollect, slice, Rank{r});
      enter(Stage::kReduce, slice, kSelf);
      enter(Stage::kUpdate, slice, kSelf);
      for (uint32_t r = 1; r < kWorld; ++r) {
        enter(Stage::kQueued, slice, Rank{r});
        enter(Stage::kPublish, slice, Rank{r});
      }
    } else {
      enter(Stage::kQueued, slice, slice.server);
      enter(Stage::kPush, slice, slice.server);
    }
    enter(Stage::kApplied, slice, slice.server);
  }
  for (uint32_t t = 0; t < kTensors && observer != nullptr; ++t) {
    const TimePoint now = clock.now();
    observer->onWaitBegins({TensorId{t}, step, now, now});
    observer->onWait({TensorId{t}, step, now, clock.now()});
    count += 2;
  }
  return count;
}

double secondsOfStep(const plan::Plan& plan, StageObserver* observer, uint64_t steps,
                     uint64_t& reports) {
  const base::RealClock clock;
  const plan::Stages stages(observer, clock);
  std::vector<double> seconds;
  for (uint64_t step = 0; step < steps; ++step) {
    const Duration before = base::threadCpuTime();
    reports = reportStep(plan, stages, observer, Step{step});
    seconds.push_back(base::seconds(base::threadCpuTime() - before));
  }
  std::ranges::nth_element(seconds, seconds.begin() + static_cast<std::ptrdiff_t>(steps / 2));
  return seconds[steps / 2];
}

int run(uint64_t steps) {
  const plan::Plan plan = resnetLike();
  net::LoopThread thread("flight-cost");
  const auto recorder =
      *flight::FlightRecorder::begin(base::Config(), {.rank = kSelf, .worldSize = kWorld});
  session::FlightLog log(*recorder, thread.loop(), plan, "model");
  uint64_t reports = 0;
  const double without = secondsOfStep(plan, nullptr, steps, reports);
  const uint64_t before = recorder->ring().words()[flight::kRecordsNext];
  const double with = secondsOfStep(plan, &log, steps, reports);
  const uint64_t records = (recorder->ring().words()[flight::kRecordsNext] - before) / steps;
  const uint64_t room = recorder->ring().words()[flight::kRecords];
  fmt::print("{} stages and waits of a step, {} records of it; the memory holds {:.1f} steps\n",
             reports, records, static_cast<double>(room) / static_cast<double>(records));
  fmt::print("CPU of a step, median of {}: {:.3f} ms with, {:.3f} ms without: {:.3f} ms\n", steps,
             with * 1e3, without * 1e3, (with - without) * 1e3);
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  constexpr uint64_t kSteps = 201;
  return sluice::run(argc > 1 ? std::strtoull(argv[1], nullptr, 10) : kSteps);
}
