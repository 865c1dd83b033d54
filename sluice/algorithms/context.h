// The parts below a strategy that it works with, as the session hands them over.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include <fmt/format.h>

#include <sluice/algorithms/result_sink.h>
#include <sluice/base/config.h>
#include <sluice/base/status.h>
#include <sluice/data/gate/gates.h>
#include <sluice/data/optimizer/optimizer_spec.h>
#include <sluice/data/plan/plan.h>
#include <sluice/observer.h>
#include <sluice/transport/fabric/fabric.h>

namespace sluice::collective {
class Collective;
}  // namespace sluice::collective

namespace sluice::algorithms {

// All of it is used on the fabric's loop, and outlives the strategy; only the fabric goes first, so
// that its last completions find the strategy alive.
struct Context {
  const plan::Plan& plan;
  fabric::Fabric& fabric;
  gate::Gates& gates;
  // The worker's memory, by TensorId; empty at a rank that only serves. A tensor on a device may
  // have no memory for its mean, if its gradients come to targets of the strategy's own
  // (StagingTargets): the sink takes the mean from there.
  std::span<const TensorMemory> memory;
  optimizer::OptimizerSpec update;
  // The parameters that servers start from, by TensorId. Read only while the strategy is made, and
  // only if the update publishes parameters.
  std::span<const std::span<const std::byte>> parameters;
  const base::Config& config;  // for options that may differ between ranks: credit
  StageObserver* observer;     // may be null
  // True iff no update is made before the training thread has said so, by Strategy::decide().
  bool updatesWaitForWord = false;
  // Reduces, for algorithms that all-reduce; null if the strategy itself reduces, on the fabric.
  collective::Collective* collective = nullptr;
  // Called when an accepted message turns out to be invalid; names the peer to give up. If empty,
  // the gates fail.
  std::function<void(Rank peer, const Status& why)> onRefused{};
  // Hears of every result before its gate opens; may be null.
  ResultSink* results = nullptr;
  // Gives the places for results of servers; null if they go to their tensors' memory. REQUIRES:
  // there is a sink
  ResultPlaces* places = nullptr;

  void refuse(Rank peer, const Status& why) const {
    if (onRefused) return onRefused(peer, why);
    gates.fail(why.withContext(fmt::format("rank {} has sent", index(peer))));
  }

  plan::Stages stages() const { return {observer, fabric.loop().clock()}; }

  // Returns the place for the result of a slice.
  std::span<std::byte> placeOf(const plan::Slice& slice, Step step) const {
    if (places != nullptr) return places->placeFor(slice, step);
    const size_t elementBytes = sizeOf(plan.model()[slice.tensor].dtype);
    return memory[index(slice.tensor)].result.subspan(slice.offset * elementBytes,
                                                      slice.count * elementBytes);
  }

  // Reports that the result of `step` of a slice is in its place, and came from rank `from`. An
  // algorithm calls it once for every slice, before it opens the tensor's gate.
  void resultIsHere(const plan::Slice& slice, Step step, Rank from) const {
    if (results == nullptr) return stages().enter(Stage::kApplied, step, slice, from);
    resultIsHere(slice, step, from, {memory[index(slice.tensor)].result});
  }

  // Reports the slice of a tensor whose whole result is `whole`.
  void resultIsHere(const plan::Slice& slice, Step step, Rank from,
                    const ResultBytes& whole) const {
    if (results == nullptr) return stages().enter(Stage::kApplied, step, slice, from);
    if (places == nullptr) stages().enter(Stage::kStageIn, step, slice, from);
    const size_t elementBytes = sizeOf(plan.model()[slice.tensor].dtype);
    results->onResult({.tensor = slice.tensor,
                       .slice = slice.id,
                       .step = step,
                       .firstByte = slice.offset * elementBytes,
                       .bytes = slice.count * elementBytes,
                       .from = from,
                       .whole = whole});
  }

  // Reports that this slice has no result in `step`. Says nothing to the sink: noResultComes()
  // does.
  void sliceHasNoResult(const plan::Slice& slice, Step step, Rank from) const {
    stages().enter(Stage::kApplied, step, slice, from);
  }

  // Reports that no slice of the tensor has a result in `step`. An algorithm calls it before it
  // opens the gate empty.
  void noResultComes(TensorId tensor, Step step) const {
    if (results != nullptr) results->onNoResult(tensor, step);
  }

  // Drops the tensor's step: opens its gate empty.
  void openDropped(TensorId tensor, Step step) const {
    for (const plan::Slice& slice : plan.slicesOf(tensor))
      sliceHasNoResult(slice, step, fabric.rank());
    noResultComes(tensor, step);
    gates.openEmpty(tensor, step);
  }
};

}  // namespace sluice::algorithms
