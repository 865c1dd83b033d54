// The messages of deep gradient compression to servers and back: the largest elements of a
// gradient, as each worker's Compressor chooses them, and as an answer the elements that the
// server's policy has packed (codec/sparse.h). Belongs to the fabric's loop.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <sluice/algorithms/dgc/compressor.h>
#include <sluice/algorithms/server/answering.h>

namespace sluice::algorithms {

class SparseFormat final : public PayloadFormat {
 public:
  using Bytes = std::vector<std::byte>;

  // REQUIRES: settings of settingsOfDgc(context)
  SparseFormat(const Context& context, const DgcSettings& settings);

  DType dtypeOf(const plan::Slice& /*slice*/) const override { return DType::kBytes; }
  std::optional<std::span<const std::byte>> part(const WorkerSlice& worker) override;
  bool readsWholeTensors() const override { return compressor_.clips(); }
  Buffer bufferForAnswer(const plan::Slice& slice, uint64_t bytes) override;
  Buffer bufferForPart(const plan::Slice& slice, Rank worker, uint64_t bytes) override;
  std::span<const std::byte> answer(const plan::Slice& slice, Rank worker) const override;
  std::optional<uint64_t> answerBytes(const plan::Slice& /*slice*/) const override {
    return std::nullopt;
  }

  // Return a worker's last part of the slice, and the last answer to it.
  std::span<const std::byte> sent(SliceId slice) const { return workerSide_[index(slice)].sent; }
  std::span<const std::byte> received(SliceId slice) const {
    return workerSide_[index(slice)].received;
  }

  // Returns the bytes that lie at a server from the worker, or for it. REQUIRES: the slice is
  // served here.
  Bytes& desk(SliceId slice, Rank worker) {
    return served_[index(slice)][plan_.roles().workerPosition(worker)];
  }

  Compressor& compressor() { return compressor_; }

 private:
  struct WorkerSide {
    Bytes sent;
    Bytes received;
  };

  bool canBe(const plan::Slice& slice, uint64_t bytes) const {
    return bytes <= 1 + plan_.bytesOf(slice);  // all elements
  }

  const plan::Plan& plan_;
  Compressor compressor_;  // by SliceId, as the next two
  std::vector<WorkerSide> workerSide_;
  std::vector<std::vector<Bytes>> served_;  // then by worker position; empty: lives elsewhere
};

}  // namespace sluice::algorithms
