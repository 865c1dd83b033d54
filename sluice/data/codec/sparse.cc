#include <sluice/data/codec/sparse.h>

#include <bit>
#include <cstring>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include <sluice/base/check.h>
#include <sluice/data/kernel/element.h>

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
  for (; number > kLow; number >>= kLowBits)
    out.push_back(static_cast<std::byte>((number & kLow) | kMore));
  out.push_back(static_cast<std::byte>(number));
}

void appendFloat(std::vector<std::byte>& out, float value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), bytes, bytes + sizeof(value));
}

// Takes one number off the front; empty if no number that fits 32 bits is there.
std::optional<uint32_t> takeVarint(std::span<const std::byte>& bytes) {
  uint64_t number = 0;
  // Five bytes hold more than 32 bits, hence the check below. A number that goes on after them
  // is malformed, and cannot keep this loop running.
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

Status damaged(std::string_view why) {
  return {Code::kDataLoss, fmt::format("a compressed gradient is malformed: {}", why)};
}

size_t sparseBytes(std::span<const uint32_t> places) {
  size_t bytes =
      1 + varintBytes(static_cast<uint32_t>(places.size())) + places.size() * sizeof(float);
  // A place is sent as its distance from the one before, which mostly fits one byte.
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

std::vector<std::byte> encodeSparse(std::span<const float> values,
                                    std::span<const uint32_t> places) {
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

Result<SparseVector> decodeSparse(std::span<const std::byte> bytes, size_t elements) {
  if (bytes.empty()) return damaged("empty");
  const std::byte kind = bytes.front();
  bytes = bytes.subspan(1);
  SparseVector read;
  if (kind == kDense) {
    if (bytes.size() != elements * sizeof(float)) return damaged("not all elements");
    read.places.resize(elements);
    std::iota(read.places.begin(), read.places.end(), 0U);
  } else if (kind == kSparse) {
    const auto count = takeVarint(bytes);
    // Memory is reserved for no more elements than the bytes can hold: every element takes at
    // least one byte of its distance. Distances add up beyond the end only in a damaged
    // message, and places ascend by themselves.
    if (!count || *count > elements || *count > bytes.size()) return damaged("too many elements");
    read.places.reserve(*count);
    uint64_t next = 0;
    for (uint32_t i = 0; i < *count; ++i) {
      const auto distance = takeVarint(bytes);
      if (!distance || next + *distance >= elements) return damaged("an element beyond the end");
      read.places.push_back(static_cast<uint32_t>(next + *distance));
      next += *distance + uint64_t{1};
    }
    if (bytes.size() != read.places.size() * sizeof(float))
      return damaged("not a value for each element");
  } else {
    return damaged("of no kind");
  }
  read.values.resize(read.places.size());
  if (!bytes.empty()) std::memcpy(read.values.data(), bytes.data(), bytes.size());
  return read;
}

void addScaledSparse(const SparseVector& vector, float scale, std::span<std::byte> floats) {
  for (size_t i = 0; i < vector.places.size(); ++i) {
    const auto before = kernel::loadAt<float>(floats.data(), vector.places[i]);
    kernel::storeAt(floats.data(), vector.places[i], before + vector.values[i] * scale);
  }
}

void setSparse(const SparseVector& vector, std::span<std::byte> floats) {
  for (size_t i = 0; i < vector.places.size(); ++i)
    kernel::storeAt(floats.data(), vector.places[i], vector.values[i]);
}

Status addSparse(std::span<const std::byte> bytes, std::span<float> sum,
                 std::vector<uint32_t>& places) {
  SLUICE_ASSIGN_OR_RETURN(const SparseVector read, decodeSparse(bytes, sum.size()));
  for (size_t i = 0; i < read.places.size(); ++i) sum[read.places[i]] += read.values[i];
  places.insert(places.end(), read.places.begin(), read.places.end());
  return base::ok();
}

}  // namespace sluice::codec
