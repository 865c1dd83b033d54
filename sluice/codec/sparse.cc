#include <sluice/codec/sparse.h>

#include <bit>
#include <cstring>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include <sluice/base/check.h>

namespace sluice::codec {
namespace {

static_assert(std::endian::native == std::endian::little, "values are sent in this order of bytes");

constexpr auto kDense = std::byte{0};
constexpr auto kSparse = std::byte{1};
constexpr uint32_t kLow = 0x7f;  // bits of a number in each byte of a varint
constexpr unsigned kLowBits = 7;
constexpr uint32_t kMore = 0x80;  // another byte follows

size_t varintBytes(uint32_t number) {
  return (static_cast<size_t>(std::bit_width(number | 1U)) + kLowBits - 1) / kLowBits;
}

void appendVarint(std::vector<std::byte>& out, uint32_t number) {
  for (; number > kLow; number >>= kLowBits) out.push_back(static_cast<std::byte>((number & kLow) | kMore));
  out.push_back(static_cast<std::byte>(number));
}

void appendFloat(std::vector<std::byte>& out, float value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), bytes, bytes + sizeof(value));
}

// Takes one number off the front; nothing if there is none that fits 32 bits.
std::optional<uint32_t> takeVarint(std::span<const std::byte>& bytes) {
  uint64_t number = 0;
  for (unsigned shift = 0; shift < 5 * kLowBits && !bytes.empty(); shift += kLowBits) {
    const auto byte = static_cast<uint32_t>(bytes.front());
    bytes = bytes.subspan(1);
    number |= uint64_t{byte & kLow} << shift;
    if ((byte & kMore) == 0) {
      if (number > UINT32_MAX) return std::nullopt;
      return static_cast<uint32_t>(number);
    }
  }
  return std::nullopt;
}

float floatAt(std::span<const std::byte> bytes, size_t index) {
  float value = 0;
  std::memcpy(&value, bytes.data() + index * sizeof(value), sizeof(value));
  return value;
}

Status damaged(std::string_view why) {
  return {Code::kDataLoss, fmt::format("not a sparse vector: {}", why)};
}

size_t sparseBytes(std::span<const uint32_t> places) {
  size_t bytes = 1 + varintBytes(static_cast<uint32_t>(places.size())) + places.size() * sizeof(float);
  uint32_t next = 0;
  for (const uint32_t place : places) {
    bytes += varintBytes(place - next);
    next = place + 1;
  }
  return bytes;
}

}  // namespace

bool isSentDense(size_t elements, std::span<const uint32_t> places) {
  return sparseBytes(places) >= 1 + elements * sizeof(float);
}

std::vector<std::byte> encodeSparse(std::span<const float> values, std::span<const uint32_t> places) {
  SLUICE_CHECK(places.empty() || places.back() < values.size(), places.size(), values.size());
  std::vector<std::byte> out;
  if (isSentDense(values.size(), places)) {
    out.reserve(1 + values.size_bytes());
    out.push_back(kDense);
    const auto bytes = std::as_bytes(values);
    out.insert(out.end(), bytes.begin(), bytes.end());
    return out;
  }
  out.reserve(sparseBytes(places));
  out.push_back(kSparse);
  appendVarint(out, static_cast<uint32_t>(places.size()));
  uint32_t next = 0;
  for (const uint32_t place : places) {
    appendVarint(out, place - next);
    next = place + 1;
  }
  for (const uint32_t place : places) appendFloat(out, values[place]);
  return out;
}

Status addSparse(std::span<const std::byte> bytes, std::span<float> sum, std::vector<uint32_t>& places) {
  if (bytes.empty()) return damaged("empty");
  const std::byte kind = bytes.front();
  bytes = bytes.subspan(1);
  if (kind == kDense) {
    if (bytes.size() != sum.size_bytes()) return damaged("not all elements");
    for (size_t i = 0; i < sum.size(); ++i) {
      sum[i] += floatAt(bytes, i);
      places.push_back(static_cast<uint32_t>(i));
    }
    return base::ok();
  }
  if (kind != kSparse) return damaged("of no kind");
  const auto count = takeVarint(bytes);
  if (!count || *count > sum.size() || *count > bytes.size()) return damaged("too many elements");
  std::vector<uint32_t> own;
  own.reserve(*count);
  uint64_t next = 0;
  for (uint32_t i = 0; i < *count; ++i) {
    const auto distance = takeVarint(bytes);
    if (!distance || next + *distance >= sum.size()) return damaged("an element beyond the end");
    own.push_back(static_cast<uint32_t>(next + *distance));
    next += *distance + uint64_t{1};
  }
  if (bytes.size() != own.size() * sizeof(float)) return damaged("not a value for each element");
  for (size_t i = 0; i < own.size(); ++i) sum[own[i]] += floatAt(bytes, i);
  places.insert(places.end(), own.begin(), own.end());
  return base::ok();
}

}  // namespace sluice::codec
