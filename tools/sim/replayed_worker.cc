#include <tools/sim/replayed_worker.h>

#include <utility>

#include <sluice/base/check.h>

namespace sluice::sim {

void ReplayedWorker::start() {
  ends_.push_back(parts_.events.now());
  factor_ = script_.factor(0);
  parts_.events.at(parts_.events.now(), *this, static_cast<uint64_t>(Piece::kGateOpened));
}

void ReplayedWorker::onEvent(uint64_t piece) {
  if (hasEnded_) return;
  switch (static_cast<Piece>(piece)) {
    case Piece::kGateOpened: endWait(); return goForward();
    case Piece::kForward: ++tensor_; return goForward();
    case Piece::kBackward: handOver(TensorId{--tensor_}); return goBackward();
    case Piece::kOther: return goForward();
  }
}

// After the last step it waits at all gates and computes nothing.
void ReplayedWorker::goForward() {
  const size_t steps = ends_.size() - 1;
  const bool isAfterAll = steps == static_cast<size_t>(script_.steps);
  for (; tensor_ < script_.layers.size(); ++tensor_) {
    const TensorId tensor{tensor_};
    if (!parts_.gates.isOpen(tensor)) {
      waitingSince_ = parts_.events.now();
      return parts_.gates.whenOpen(tensor, [this](const Status& status) {
        if (!status.isOk()) return end(status);
        // The gate opens when the loop has done the work that opens it.
        parts_.events.at(parts_.loop.freeAt(), *this, static_cast<uint64_t>(Piece::kGateOpened));
      });
    }
    const double seconds = isAfterAll ? 0 : factor_ * script_.layers[tensor_].forward;
    if (seconds > 0) return compute(seconds, Piece::kForward);
  }
  if (isAfterAll) return end(base::ok());
  goBackward();
}

void ReplayedWorker::goBackward() {
  for (; tensor_ > 0; handOver(TensorId{--tensor_})) {
    const double seconds = factor_ * script_.layers[tensor_ - 1].backward;
    if (seconds > 0) return compute(seconds, Piece::kBackward);
  }
  ends_.push_back(parts_.events.now());
  const size_t steps = ends_.size() - 1;
  factor_ = script_.factor(steps);
  const bool isAfterAll = steps == static_cast<size_t>(script_.steps);
  if (isAfterAll || script_.otherSeconds <= 0) return goForward();
  compute(factor_ * script_.otherSeconds, Piece::kOther);
}

void ReplayedWorker::endWait() {
  const auto since = std::exchange(waitingSince_, std::nullopt);
  if (!since) return;
  const uint64_t stepsDone = ends_.size() - 1;
  parts_.observer.onWait({.tensor = TensorId{tensor_},
                          .step = Step{stepsDone - 1},
                          .from = *since,
                          .to = parts_.events.now()});
}

void ReplayedWorker::handOver(TensorId tensor) {
  const auto step = parts_.gates.close(tensor);
  SLUICE_CHECK(step.isOk(), step.status().toString());  // it was open in the forward pass
  for (const plan::Slice& slice : parts_.plan.slicesOf(tensor)) {
    parts_.observer.onStage(
        {Stage::kReady, *step, tensor, slice.id, parts_.rank, parts_.events.now()});
  }
  parts_.loop.post([this, tensor, number = *step] {
    parts_.strategy.contribute({tensor, number, /*hasGradient=*/true});
  });
}

void ReplayedWorker::compute(double seconds, Piece piece) {
  parts_.events.at(parts_.events.now() + base::fromSeconds(seconds), *this,
                   static_cast<uint64_t>(piece));
}

void ReplayedWorker::end(const Status& status) {
  if (hasEnded_) return;
  status_ = status;
  hasEnded_ = true;
  script_.onEnd();
}

}  // namespace sluice::sim
