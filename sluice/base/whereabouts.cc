#include <sluice/base/whereabouts.h>

#include <chrono>
#include <ratio>

#include <fmt/format.h>

namespace sluice::base {
namespace {

// The word, from its lowest bit: the kind, the step, and the time of the change. The time counts
// sixteenths of a second, and begins anew after twelve days: nobody waits for that long.
constexpr int kStepAt = 8;
constexpr int kTimeAt = 40;
constexpr uint64_t kStepMask = (uint64_t{1} << (kTimeAt - kStepAt)) - 1;
constexpr uint64_t kTimeMask = (uint64_t{1} << (64 - kTimeAt)) - 1;
using Tick = std::chrono::duration<int64_t, std::ratio<1, 16>>;

uint64_t ticksOf(TimePoint time) {
  return static_cast<uint64_t>(std::chrono::duration_cast<Tick>(time.time_since_epoch()).count()) &
         kTimeMask;
}

Doing kindOf(uint64_t word) {
  return doingOf(static_cast<uint8_t>(word));
}
uint64_t stepOf(uint64_t word) {
  return (word >> kStepAt) & kStepMask;
}

bool hasStep(Doing doing) {
  switch (doing) {
    case Doing::kUserCode:
    case Doing::kForward:
    case Doing::kBackward:
    case Doing::kGate:
    case Doing::kBuffers: return true;
    default: return false;
  }
}

// True iff a gather or broadcast inside such a call says less than the call's own name.
bool hasNameOfItsOwn(Doing doing) {
  return doing >= Doing::kMean && doing <= Doing::kLeaving;
}

}  // namespace

Doing doingOf(uint8_t number) {
  return number < static_cast<uint8_t>(Doing::kElsewhere) ? static_cast<Doing>(number)
                                                          : Doing::kElsewhere;
}

std::string describe(const Whereabouts& where) {
  switch (where.doing) {
    case Doing::kUnknown: return "at a place that it has not told";
    case Doing::kUserCode: return fmt::format("in user code of step {}", where.step);
    case Doing::kForward: return fmt::format("in the forward pass of step {}", where.step);
    case Doing::kEvaluation: return "in a forward pass without gradients";
    case Doing::kBackward: return fmt::format("in the backward pass of step {}", where.step);
    case Doing::kStep: return "in optimizer.step()";
    case Doing::kGate: return fmt::format("waiting for results of step {}", where.step);
    case Doing::kGather: return "in a meeting of all ranks";
    case Doing::kBroadcast: return "in a broadcast";
    case Doing::kMean: return "in sluice.mean()";
    case Doing::kBarrier: return "in sluice.barrier()";
    case Doing::kBuffers:
      return fmt::format("in the exchange of buffers before the forward pass of step {}",
                         where.step);
    case Doing::kPlan: return "agreeing with the other ranks on what is trained";
    case Doing::kCheckpoint: return "collecting the state of a checkpoint";
    case Doing::kLeaving: return "leaving the job";
    case Doing::kElsewhere: break;
  }
  return "somewhere else";
}

std::string describeSince(Duration since) {
  const double value = seconds(since);
  return value < 10 ? fmt::format("{:.1f} s", value) : fmt::format("{:.0f} s", value);
}

TrainingThread::TrainingThread(const Clock& clock)
    : clock_(clock), word_(pack(Doing::kUserCode, 0)) {}

uint64_t TrainingThread::pack(Doing doing, uint64_t step) const {
  return static_cast<uint64_t>(doing) | (step & kStepMask) << kStepAt |
         ticksOf(clock_.now()) << kTimeAt;
}

TrainingThread::Before TrainingThread::enter(Doing doing, uint64_t step) {
  const uint64_t before = word_.load(std::memory_order_relaxed);
  const bool saysLess = doing == Doing::kGather || doing == Doing::kBroadcast;
  if (!saysLess || !hasNameOfItsOwn(kindOf(before)))
    word_.store(pack(doing, step), std::memory_order_relaxed);
  return Before{before};
}

void TrainingThread::leave(Before before) {
  const auto word = static_cast<uint64_t>(before);
  const Doing doing = kindOf(word);
  if (doing != Doing::kUserCode && doing != Doing::kUnknown)
    return word_.store(word, std::memory_order_relaxed);
  const uint64_t last = word_.load(std::memory_order_relaxed);
  const uint64_t step = stepOf(hasStep(kindOf(last)) ? last : word);
  word_.store(pack(Doing::kUserCode, step), std::memory_order_relaxed);
}

void TrainingThread::pass() {
  const uint64_t word = word_.load(std::memory_order_relaxed);
  if (kindOf(word) == Doing::kUserCode)
    word_.store(pack(Doing::kUserCode, stepOf(word)), std::memory_order_relaxed);
}

Whereabouts TrainingThread::now() const {
  const uint64_t word = word_.load(std::memory_order_relaxed);
  const uint64_t ticks = (ticksOf(clock_.now()) - (word >> kTimeAt)) & kTimeMask;
  return {kindOf(word), stepOf(word), Tick(static_cast<int64_t>(ticks))};
}

}  // namespace sluice::base
