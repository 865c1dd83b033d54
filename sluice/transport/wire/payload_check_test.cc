#include <sluice/transport/wire/payload_check.h>

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

namespace sluice::wire {
namespace {

secret::Key keyOf(unsigned char seed) {
  secret::Key key;
  std::ranges::fill(key.mutableBytes(), static_cast<std::byte>(seed));
  return key;
}

std::vector<std::byte> somePayload() {
  std::vector<std::byte> bytes(5000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
  return bytes;
}

class PayloadChecks : public testing::TestWithParam<PayloadCheckKind> {
 protected:
  std::vector<std::byte> trailerOf(std::span<const std::byte> payload, uint64_t sequence = 3,
                                   size_t pieceBytes = 5000, unsigned char seed = 1) {
    PayloadCheck check(GetParam(), keyOf(seed));
    check.begin(sequence);
    for (size_t at = 0; at < payload.size(); at += pieceBytes) {
      check.add(payload.subspan(at, std::min(pieceBytes, payload.size() - at)));
    }
    const auto trailer = check.end();
    return {trailer.begin(),
            trailer.begin() + static_cast<ptrdiff_t>(check.trailerBytes(payload.size()))};
  }
};

TEST_P(PayloadChecks, PiecesMakeNoDifference) {
  const auto payload = somePayload();
  for (const size_t pieceBytes : {1, 7, 16, 1000, 4999}) {
    EXPECT_EQ(trailerOf(payload, 3, pieceBytes), trailerOf(payload)) << pieceBytes;
  }
}

TEST_P(PayloadChecks, AnyChangedBitIsNoticed) {
  auto payload = somePayload();
  const auto trailer = trailerOf(payload);
  PayloadCheck check(GetParam(), keyOf(1));
  const auto fits = [&](uint64_t sequence) {
    check.begin(sequence);
    check.add(payload);
    return check.endsWith(trailer);
  };
  EXPECT_TRUE(fits(3));
  EXPECT_FALSE(fits(4));  // nor does the trailer fit another message
  for (size_t bit = 0; bit < payload.size() * 8; bit += 997) {
    payload[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    EXPECT_FALSE(fits(3)) << bit;
    payload[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
  }
  EXPECT_TRUE(fits(3));
}

TEST_P(PayloadChecks, AnEmptyPayloadHasNoTrailer) {
  EXPECT_EQ(PayloadCheck(GetParam(), keyOf(1)).trailerBytes(0), 0U);
  EXPECT_GT(PayloadCheck(GetParam(), keyOf(1)).trailerBytes(1), 0U);
}

TEST_P(PayloadChecks, OnlyATagNeedsTheKey) {
  EXPECT_EQ(trailerOf(somePayload(), 3, 5000, 1) == trailerOf(somePayload(), 3, 5000, 2),
            GetParam() == PayloadCheckKind::kCrc32c);
}

INSTANTIATE_TEST_SUITE_P(Kinds, PayloadChecks,
                         testing::Values(PayloadCheckKind::kCrc32c, PayloadCheckKind::kTag),
                         [](const auto& each) { return std::string(name(each.param)); });

TEST(PayloadCheck, NothingIsTheDefault) {
  EXPECT_EQ(PayloadCheck().trailerBytes(1000), 0U);
}

TEST(PayloadCheck, TheChecksumOfAWholePayloadIsTheSame) {
  PayloadCheck check(PayloadCheckKind::kCrc32c, keyOf(1));
  check.begin(3);
  check.add(somePayload());
  const uint32_t whole = payloadCrc32c(3, somePayload());
  EXPECT_TRUE(check.endsWith(std::as_bytes(std::span(&whole, 1))));
}

}  // namespace
}  // namespace sluice::wire
