// Makes gradients smaller on their way. Pure functions on bytes at any alignment; any thread;
// elements are f32.
//
// A codec is *repeatable*: encoding what it has decoded gives the same bytes again. So a rank that
// passes a value on, and the one that sent it first and keeps the decoded value, all have the same
// bits.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include <sluice/base/status.h>

namespace sluice::codec {

// The number of elements that share a scale. A part of a tensor is encoded by itself, so parts
// begin at multiples of this.
inline constexpr size_t kBlock = 256;

class Codec {
 public:
  virtual ~Codec() = default;
  virtual std::string_view name() const = 0;
  virtual size_t encodedBytes(size_t elements) const = 0;

  // REQUIRES: encoded.size() == encodedBytes(elements.size() / sizeof(float)), for both.
  virtual void encode(std::span<const std::byte> elements, std::span<std::byte> encoded) const = 0;
  virtual void decode(std::span<const std::byte> encoded, std::span<std::byte> elements) const = 0;

  // Returns the largest possible distance between a decoded element and the encoded one, in a block
  // whose largest magnitude is `largest`. The limit is infinite if the codec cannot hold that
  // number. An infinity or a NaN in a block does not decode to a finite number at its place.
  virtual double errorLimit(double largest) const = 0;
};

extern const Codec& kFp16;  // 2 bytes an element, up to 65504
extern const Codec& kBf16;  // 2 bytes an element, the range of f32
extern const Codec& kInt8;  // 1 byte an element and one for each block: its scale, a power of two

std::vector<std::string_view> codecNames();

// Returns null for "none".
Result<const Codec*> findCodec(std::string_view name);

}  // namespace sluice::codec
