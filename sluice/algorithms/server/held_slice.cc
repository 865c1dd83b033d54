#include <sluice/algorithms/server/held_slice.h>

#include <utility>

#include <sluice/base/byte_io.h>

namespace sluice::algorithms {

std::vector<std::byte> packHeldSlice(std::span<const std::byte> parameters,
                                     const optimizer::OptimizerState* optimizer) {
  constexpr size_t kLengths = 2 * sizeof(uint64_t);
  base::ByteWriter out;
  out.reserve(kLengths + parameters.size() + (optimizer == nullptr ? 0 : optimizer->savedBytes()));
  out.block(parameters);
  out.block(optimizer == nullptr ? std::vector<std::byte>() : optimizer->toBytes());
  return std::move(out).take();
}

Result<HeldSlice> readHeldSlice(std::span<const std::byte> bytes) {
  base::ByteReader in(bytes);
  HeldSlice held{.parameters = in.block(), .optimizer = std::nullopt};
  const auto optimizer = in.block();
  if (in.failed() || !in.atEnd())
    return Status(Code::kDataLoss, "the saved state of a server is malformed");
  if (!optimizer.empty()) {
    SLUICE_ASSIGN_OR_RETURN(held.optimizer, optimizer::OptimizerState::fromBytes(optimizer));
  }
  return held;
}

uint64_t longestHeldSlice(uint64_t elements) {
  // Numbers for each element: the parameter, up to two of an optimizer (Adam), and one to spare.
  constexpr uint64_t kNumbers = 4;
  constexpr uint64_t kWords = 1024;  // names, counts and lengths
  return kNumbers * sizeof(double) * elements + kWords;
}

}  // namespace sluice::algorithms
