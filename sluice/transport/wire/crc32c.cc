#include <sluice/transport/wire/crc32c.h>

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace sluice::wire {
namespace {

constexpr uint32_t kPolynomial =
    0x82f63b78;  // bits reversed: the highest bit is the coefficient of x^0

constexpr uint32_t timesX(uint32_t a) {
  return (a & 1) != 0 ? (a >> 1) ^ kPolynomial : a >> 1;
}

// tables[0][b]: the checksum's state after byte b; tables[k][b]: after byte b and k zero bytes.
constexpr auto kTables = [] {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t state = b;
    for (int bit = 0; bit < 8; ++bit) state = timesX(state);
    tables[0][b] = state;
  }
  for (size_t k = 1; k < tables.size(); ++k) {
    for (uint32_t b = 0; b < 256; ++b) {
      const uint32_t last = tables[k - 1][b];
      tables[k][b] = (last >> 8) ^ tables[0][last & 0xff];
    }
  }
  return tables;
}();

uint64_t load64(const std::byte* at) {
  uint64_t value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Takes eight bytes at a time, with a table for each.
uint32_t stateAfterPortable(uint32_t state, const std::byte* data, size_t bytes) {
  // The state of eight bytes is the exclusive or of eight looked-up states, since the checksum
  // is linear: byte i still has 7 - i bytes behind it, hence table 7 - i. The lookups do not
  // wait for each other, which a loop over single bytes would.
  for (; bytes >= 8; bytes -= 8, data += 8) {
    const uint64_t word = load64(data) ^ state;
    state = 0;
    for (size_t i = 0; i < 8; ++i) state ^= kTables[7 - i][(word >> (8 * i)) & 0xff];
  }
  for (; bytes > 0; --bytes, ++data) {
    state = (state >> 8) ^ kTables[0][(state ^ std::to_integer<uint32_t>(*data)) & 0xff];
  }
  return state;
}

#if defined(__x86_64__)
constexpr uint32_t product(uint32_t a, uint32_t b) {
  uint32_t sum = 0;
  for (uint32_t bit = uint32_t{1} << 31; bit != 0; bit >>= 1, b = timesX(b)) {
    if ((a & bit) != 0) sum ^= b;
  }
  return sum;
}

// Moves a state past `kBytes` zero bytes: a product with x^(8 * kBytes), looked up by the state's
// four bytes.
template <size_t kBytes>
struct Zeros {
  static constexpr auto kByByte = [] {
    uint32_t power = uint32_t{1} << 31;
    uint32_t square = uint32_t{1} << 30;
    for (size_t n = 8 * kBytes; n > 0; n >>= 1, square = product(square, square)) {
      if ((n & 1) != 0) power = product(power, square);
    }
    std::array<std::array<uint32_t, 256>, 4> tables{};
    for (size_t k = 0; k < 4; ++k) {
      for (uint32_t b = 0; b < 256; ++b) tables[k][b] = product(power, b << (8 * k));
    }
    return tables;
  }();
  static uint32_t after(uint32_t state) {
    return kByByte[0][state & 0xff] ^ kByByte[1][(state >> 8) & 0xff] ^
           kByByte[2][(state >> 16) & 0xff] ^ kByByte[3][state >> 24];
  }
};

// The instruction takes three cycles and can begin every cycle, so three neighbouring blocks go
// side by side.
template <size_t kBlock>
[[gnu::target("sse4.2")]] uint32_t threeBlocks(uint32_t state, const std::byte*& data,
                                               size_t& bytes) {
  static_assert(kBlock % 8 == 0);
  for (; bytes >= 3 * kBlock; bytes -= 3 * kBlock, data += 3 * kBlock) {
    uint64_t a = state;
    uint64_t b = 0;
    uint64_t c = 0;
    for (size_t i = 0; i < kBlock; i += 8) {
      a = _mm_crc32_u64(a, load64(data + i));
      b = _mm_crc32_u64(b, load64(data + kBlock + i));
      c = _mm_crc32_u64(c, load64(data + 2 * kBlock + i));
    }
    // Blocks b and c were summed from zero, as if nothing stood before them. Linearity puts
    // that right: move the sum of what came before past the block's length in zero bytes, then
    // add the block's own.
    state = Zeros<kBlock>::after(static_cast<uint32_t>(a)) ^ static_cast<uint32_t>(b);
    state = Zeros<kBlock>::after(state) ^ static_cast<uint32_t>(c);
  }
  return state;
}

[[gnu::target("sse4.2")]] uint32_t stateAfterSse42(uint32_t state, const std::byte* data,
                                                   size_t bytes) {
  state = threeBlocks<2048>(state, data, bytes);
  state = threeBlocks<128>(state, data, bytes);
  for (; bytes >= 8; bytes -= 8, data += 8) {
    state = static_cast<uint32_t>(_mm_crc32_u64(state, load64(data)));
  }
  for (; bytes > 0; --bytes, ++data) state = _mm_crc32_u8(state, std::to_integer<uint8_t>(*data));
  return state;
}
#endif

using StateAfter = uint32_t (*)(uint32_t, const std::byte*, size_t);

StateAfter bestForThisCpu() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2") != 0) return stateAfterSse42;
#endif
  return stateAfterPortable;
}

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before) {
  static const StateAfter kStateAfter = bestForThisCpu();
  return ~kStateAfter(~before, bytes.data(), bytes.size());
}

uint32_t detail::crc32cPortable(std::span<const std::byte> bytes, uint32_t before) {
  return ~stateAfterPortable(~before, bytes.data(), bytes.size());
}

}  // namespace sluice::wire
