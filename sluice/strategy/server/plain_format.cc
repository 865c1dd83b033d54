#include <sluice/strategy/server/plain_format.h>

#include <sluice/strategy/slices.h>

namespace sluice::strategy {

PlainFreight::PlainFreight(const Rooms& rooms, Part part)
    : plan_(rooms.plan),
      memory_(rooms.memory),
      part_(part),
      centre_(rooms.plan, rooms.fabric.rank(), rooms.update) {
  setServed(centre_, plan_, rooms.fabric.rank(),
            [&](TensorId id) { return rooms.parameters[index(id)]; });
}

std::optional<std::span<const std::byte>> PlainFreight::part(const WorkerSlice& worker) {
  if (part_ == Part::kParameters) return worker.parameters;
  if (worker.gradient.empty()) return std::nullopt;
  return worker.gradient;
}

Freight::Place PlainFreight::placeForAnswer(const plan::Slice& slice, uint64_t bytes) {
  if (bytes != plan_.bytesOf(slice)) return std::nullopt;
  return partOf(plan_, memory_[index(slice.tensor)].result, slice);
}

Freight::Place PlainFreight::placeForPart(const plan::Slice& slice, Rank worker, uint64_t bytes) {
  if (bytes != plan_.bytesOf(slice)) return std::nullopt;
  return centre_.desk(slice.id, worker);
}

std::span<const std::byte> PlainFreight::answer(const plan::Slice& slice, Rank worker) const {
  return centre_.desk(slice.id, worker);
}

}  // namespace sluice::strategy
