// Writes and reads plain values as little-endian bytes, for data that travels between ranks or is
// hashed. The writer cannot fail; the reader checks every length before it takes a byte and
// remembers the first failure, so a caller reads all fields and asks once.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::base {

class ByteWriter final {
 public:
  // Takes memory once, instead of again and again as the bytes grow. Pass the number of bytes that
  // will be written, or a little more.
  void reserve(size_t bytes) { bytes_.reserve(bytes); }

  template <std::unsigned_integral T>
  void number(T value) {
    for (size_t i = 0; i < sizeof(T); ++i)
      bytes_.push_back(static_cast<std::byte>(value >> (8 * i)));
  }
  void text(std::string_view text) {
    number(static_cast<uint32_t>(text.size()));
    const auto bytes = std::as_bytes(std::span(text));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  void block(std::span<const std::byte> bytes) {
    number(static_cast<uint64_t>(bytes.size()));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }
  std::vector<std::byte> take() && { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

class ByteReader final {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : left_(bytes) {}

  template <std::unsigned_integral T>
  T number() {
    const auto bytes = take(sizeof(T));
    T value = 0;
    for (size_t i = 0; i < bytes.size(); ++i) {
      value = static_cast<T>(value | static_cast<T>(static_cast<T>(bytes[i]) << (8 * i)));
    }
    return value;
  }
  std::string text(size_t most) {
    const auto size = number<uint32_t>();
    if (size > most) fail();
    const auto bytes = take(size);
    std::string text(bytes.size(), '\0');
    std::ranges::transform(bytes, text.begin(), [](std::byte b) { return static_cast<char>(b); });
    return text;
  }
  // Returns a block that ByteWriter::block() wrote, as a view into the bytes that are read.
  std::span<const std::byte> block() { return take(number<uint64_t>()); }
  // Reads the count of the items that follow, each of at least `bytesEach` bytes. Fails if the
  // count is more than `most`, or more than the bytes left can hold, so that a lie cannot make the
  // caller reserve memory.
  uint32_t count(size_t most, size_t bytesEach) {
    const auto n = number<uint32_t>();
    if (n > most || n > left_.size() / bytesEach) fail();
    return failed_ ? 0 : n;
  }

  bool failed() const { return failed_; }
  bool atEnd() const { return left_.empty(); }

 private:
  void fail() {
    failed_ = true;
    left_ = {};
  }
  // Returns the next `n` bytes, or an empty span once reading has failed.
  std::span<const std::byte> take(size_t n) {
    if (n > left_.size()) fail();
    if (failed_) return {};
    const auto taken = left_.first(n);
    left_ = left_.subspan(n);
    return taken;
  }

  std::span<const std::byte> left_;
  bool failed_ = false;
};

// Returns the same bytes as a text.
inline std::string textOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace sluice::base
