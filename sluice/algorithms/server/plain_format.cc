#include <sluice/algorithms/server/plain_format.h>

#include <sluice/algorithms/slices.h>
#include <sluice/data/optimizer/optimizers.h>

namespace sluice::algorithms {

PlainFormat::PlainFormat(const Context& context, Part part)
    : plan_(context.plan),
      memory_(context.memory),
      part_(part),
      centre_(context.plan, context.fabric.rank(), context.update) {
  setServed(centre_, plan_, context.fabric.rank(),
            [&](TensorId id) { return context.parameters[index(id)]; });
  if (part != Part::kDirection || !plan_.roles().isWorker(context.fabric.rank())) return;
  momentum_.emplace(plan_, optimizer::OptimizerSpec{.optimizer = &optimizer::sgdDirection(),
                                                    .values = context.update.values});
  directions_.resize(plan_.slices().size());
}

std::optional<std::span<const std::byte>> PlainFormat::part(const WorkerSlice& worker) {
  if (part_ == Part::kParameters) return worker.parameters;
  if (worker.gradient.empty()) return std::nullopt;
  if (part_ == Part::kGradient) return worker.gradient;
  // SGD's decay and momentum depend on parameters and on the velocity, which differ by worker
  // here. The worker adds them and sends the direction of the step; the server then multiplies
  // by the learning rate alone.
  auto& direction = directions_[index(worker.slice.id)];
  direction.assign(worker.parameters.begin(), worker.parameters.end());
  momentum_->step(worker.slice, direction, worker.gradient, worker.values);
  return direction;
}

PayloadFormat::Buffer PlainFormat::bufferForAnswer(const plan::Slice& slice, uint64_t bytes) {
  if (bytes != plan_.bytesOf(slice)) return std::nullopt;
  return partOf(plan_, memory_[index(slice.tensor)].result, slice);
}

PayloadFormat::Buffer PlainFormat::bufferForPart(const plan::Slice& slice, Rank worker,
                                                 uint64_t bytes) {
  if (bytes != plan_.bytesOf(slice)) return std::nullopt;
  return centre_.desk(slice.id, worker);
}

std::span<const std::byte> PlainFormat::answer(const plan::Slice& slice, Rank worker) const {
  return centre_.desk(slice.id, worker);
}

}  // namespace sluice::algorithms
