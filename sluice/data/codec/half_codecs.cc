// Floats cut to 16 bits, rounded to nearest.
#include <algorithm>
#include <limits>

#include <sluice/data/codec/codec.h>
#include <sluice/data/kernel/reduce.h>

namespace sluice::codec {
namespace {

struct Shape {
  std::string_view name;
  DType dtype;
  double roundsToInfinity;  // numbers from here on do
  double relativeError;
  double smallestError;  // half of the smallest step
};

class HalfCodec final : public Codec {
 public:
  explicit constexpr HalfCodec(const Shape& shape) : shape_(shape) {}
  std::string_view name() const override { return shape_.name; }
  size_t encodedBytes(size_t elements) const override { return elements * sizeOf(shape_.dtype); }
  void encode(std::span<const std::byte> elements, std::span<std::byte> encoded) const override {
    kernel::narrow(shape_.dtype, encoded, elements);
  }
  void decode(std::span<const std::byte> encoded, std::span<std::byte> elements) const override {
    kernel::widen(shape_.dtype, elements, encoded);
  }
  double errorLimit(double largest) const override {
    if (largest >= shape_.roundsToInfinity) return std::numeric_limits<double>::infinity();
    return std::max(largest * shape_.relativeError, shape_.smallestError);
  }

 private:
  const Shape shape_;
};

const HalfCodec kFp16Codec({"fp16", DType::kF16, 65520, 0x1p-11, 0x1p-25});
const HalfCodec kBf16Codec({"bf16", DType::kBF16, 0x1.ffp127, 0x1p-8, 0x1p-134});

}  // namespace

const Codec& kFp16 = kFp16Codec;
const Codec& kBf16 = kBf16Codec;

}  // namespace sluice::codec
