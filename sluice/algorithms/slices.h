// Shared by strategies that move slices: how large they are, a slice's part of its tensor, the
// checks of a message about one, and work on all of them in pieces.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include <sluice/algorithms/context.h>
#include <sluice/base/loop.h>
#include <sluice/base/status.h>
#include <sluice/data/plan/plan.h>
#include <sluice/transport/wire/header.h>

namespace sluice::algorithms {

inline constexpr uint64_t kPublishedSlice =
    plan::Slicing{}.sliceElements;  // the best that P3's authors found
// The slice size of the sharded placements: with a chunk over all servers, four such messages carry
// as much as one slice of p3.
inline constexpr uint64_t kShardedSlice = 12'500;

// Returns a size divided by --shrink, at least 1.
uint64_t shrunk(const base::Config& config, uint64_t size);

// Chooses whole tensors, as MXNet's KVStore places them (plan/slicing.h).
void chooseWholeTensors(const base::Config& config, plan::PlanSpec& spec);

// Chooses slices of `preferred` parameters, unless the user wants others.
Status chooseSlices(const base::Config& config, plan::Placement placement, uint64_t preferred,
                    plan::PlanSpec& spec);

// Refuses an update that leaves the step to the user's own optimizer, since there is no mean
// gradient to give it, and a model with a type that cannot be calculated with.
Status checkUpdate(const Context& context);

template <typename Byte>
std::span<Byte> partOf(const plan::Plan& plan, std::span<Byte> tensor, const plan::Slice& slice) {
  return tensor.subspan(slice.offset * sizeOf(plan.model()[slice.tensor].dtype),
                        plan.bytesOf(slice));
}

// Gives every slice that this rank serves its part of the parameters; tensorOf(TensorId) returns
// those of a tensor.
template <typename Server, typename TensorOf>
void setServed(Server& server, const plan::Plan& plan, Rank self, const TensorOf& tensorOf) {
  for (const SliceId id : plan.slicesOn(self)) {
    const plan::Slice& slice = plan.slice(id);
    server.setParameters(id, partOf(plan, tensorOf(slice.tensor), slice));
  }
}

// Rejects a message about a slice that does not exist.
Status checkSlice(const plan::Plan& plan, const wire::Header& header);

// Rejects such a message, and one that is not of the tensor's own type.
Status checkSliceAndType(const plan::Plan& plan, const wire::Header& header);

// "2 of 3 slices missing, 1 from server rank 0, 1 from server rank 2"
std::string describeMissing(const plan::Plan& plan, TensorId tensor, size_t left,
                            const std::function<bool(SliceId)>& isMissing);

// Work of a model's size on the loop is cut into pieces: between two of them messages, timers and
// heartbeats get their turn. A piece is about a millisecond of copying.
inline constexpr size_t kPieceBytes = size_t{4} << 20;

// Runs work(0) to work(count - 1) on the loop, in this order, and returns when all have run, or why
// the loop runs no more. Each returns how many bytes it has moved. Any thread; on the loop itself
// it is one piece. REQUIRES: what the loop does in between does not change what `work` reads.
Status inPieces(Loop& loop, size_t count, const std::function<size_t(size_t)>& work);

}  // namespace sluice::algorithms
