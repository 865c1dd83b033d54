#include <sluice/transport/wire/crc32c.h>

#include <numeric>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace sluice::wire {
namespace {

std::vector<std::byte> bytesOf(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// From RFC 3720, appendix B.4, and the usual check value.
TEST(Crc32c, KnownValues) {
  std::vector<std::byte> rising(32);
  for (size_t i = 0; i < rising.size(); ++i) rising[i] = static_cast<std::byte>(i);
  const std::vector<std::pair<std::vector<std::byte>, uint32_t>> cases{
      {{}, 0},
      {bytesOf("123456789"), 0xe3069283},
      {std::vector<std::byte>(32), 0x8a9136aa},
      {std::vector<std::byte>(32, std::byte{0xff}), 0x62a8ab43},
      {rising, 0x46dd794e},
  };
  for (const auto& [bytes, expected] : cases) {
    EXPECT_EQ(crc32c(bytes), expected);
    EXPECT_EQ(detail::crc32cPortable(bytes, 0), expected);
  }
}

TEST(Crc32c, EveryWayToComputeItGivesTheSame) {
  std::vector<std::byte> bytes(20'000);
  uint32_t state = 1;
  for (auto& byte : bytes)
    byte = static_cast<std::byte>((state = state * 1664525 + 1013904223) >> 24);
  for (size_t size = 0; size < bytes.size(); size = size * 5 / 4 + 1) {
    for (const size_t begin : {size_t{0}, size_t{3}}) {
      if (begin > size) continue;
      const auto all = std::span<const std::byte>(bytes).subspan(begin, size - begin);
      const uint32_t expected = detail::crc32cPortable(all, 0);
      EXPECT_EQ(crc32c(all), expected) << size;
      const size_t cut = all.size() / 3;
      EXPECT_EQ(crc32c(all.subspan(cut), crc32c(all.first(cut))), expected) << size;
    }
  }
}

}  // namespace
}  // namespace sluice::wire
