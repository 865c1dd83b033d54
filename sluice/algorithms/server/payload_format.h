// The form of parts and answers of a slice on the wire, and the buffers that they come from and go
// to. A worker that has asked for an answer sends nothing more of that slice before the answer is
// there. Belongs to the fabric's loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <sluice/algorithms/contribution.h>
#include <sluice/data/plan/plan.h>

namespace sluice::algorithms {

class PayloadFormat {
 public:
  virtual ~PayloadFormat() = default;

  // Returns the type of the slice's messages.
  virtual DType dtypeOf(const plan::Slice& slice) const = 0;

  // The buffer for a message of a given length; empty if no valid message has that length.
  using Buffer = std::optional<std::span<std::byte>>;

  // Returns a worker's part of this step; empty if it has nothing to say. The bytes stay as they
  // are until the slice's next part.
  virtual std::optional<std::span<const std::byte>> part(const WorkerSlice& worker) = 0;
  virtual Buffer bufferForAnswer(const plan::Slice& slice, uint64_t bytes) = 0;

  // At a worker: true iff part() reads other slices of the tensor too.
  virtual bool readsWholeTensors() const { return false; }

  // Return a server's buffer for a part of this worker, and its answer to it.
  virtual Buffer bufferForPart(const plan::Slice& slice, Rank worker, uint64_t bytes) = 0;
  virtual std::span<const std::byte> answer(const plan::Slice& slice, Rank worker) const = 0;
  // Returns the length of every answer; empty if answers differ in length.
  virtual std::optional<uint64_t> answerBytes(const plan::Slice& slice) const = 0;
};

}  // namespace sluice::algorithms
