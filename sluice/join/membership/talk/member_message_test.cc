#include <sluice/join/membership/talk/member_message.h>

#include <gtest/gtest.h>

namespace sluice::membership {
namespace {

TEST(MemberMessage, ComesBackAsItWas) {
  const MemberMessage message{.kind = MemberMessageKind::kResult,
                              .epoch = Epoch{7},
                              .key = "mean",
                              .number = 3,
                              .total = 11,
                              .offset = 6,
                              .bytes = "bytes"};
  const auto back = decodeMessage(encode(message));
  ASSERT_TRUE(back.isOk());
  EXPECT_EQ(*back, message);
}

TEST(MemberMessage, AnyShorterOrLongerFormIsRefused) {
  auto bytes = encode({.kind = MemberMessageKind::kNote, .key = "k", .bytes = "v"});
  for (size_t length = 0; length < bytes.size(); ++length)
    EXPECT_FALSE(decodeMessage(std::span(bytes).first(length)).isOk()) << length;
  bytes.push_back({});
  EXPECT_FALSE(decodeMessage(bytes).isOk());
}

TEST(MemberMessage, AnUnknownKindIsRefused) {
  auto bytes = encode(MemberMessage{});
  bytes.front() = std::byte{200};
  EXPECT_FALSE(decodeMessage(bytes).isOk());
}

}  // namespace
}  // namespace sluice::membership
