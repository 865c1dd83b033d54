#include <sluice/algorithms/dgc/sparse_format.h>

namespace sluice::algorithms {

SparseFormat::SparseFormat(const Context& context, const DgcSettings& settings)
    : plan_(context.plan),
      compressor_(context, settings, Compressor::slicesOf(context.plan)),
      workerSide_(context.plan.slices().size()),
      served_(context.plan.slices().size()) {
  for (const SliceId id : plan_.slicesOn(context.fabric.rank()))
    served_[index(id)].resize(plan_.roles().workers.size());
}

// A part is made even without a gradient: momentum may have made large what was kept back.
std::optional<std::span<const std::byte>> SparseFormat::part(const WorkerSlice& worker) {
  Bytes& sent = workerSide_[index(worker.slice.id)].sent;
  sent = compressor_.compress(index(worker.slice.id), worker.step, !worker.gradient.empty(),
                              worker.values);
  return sent;
}

PayloadFormat::Buffer SparseFormat::bufferForAnswer(const plan::Slice& slice, uint64_t bytes) {
  if (!canBe(slice, bytes)) return std::nullopt;
  Bytes& received = workerSide_[index(slice.id)].received;
  received.resize(bytes);
  return received;
}

PayloadFormat::Buffer SparseFormat::bufferForPart(const plan::Slice& slice, Rank worker,
                                                  uint64_t bytes) {
  if (!canBe(slice, bytes)) return std::nullopt;
  desk(slice.id, worker).resize(bytes);
  return desk(slice.id, worker);
}

std::span<const std::byte> SparseFormat::answer(const plan::Slice& slice, Rank worker) const {
  return served_[index(slice.id)][plan_.roles().workerPosition(worker)];
}

}  // namespace sluice::algorithms
