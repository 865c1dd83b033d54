#include <sluice/join/membership/talk/member_message.h>

#include <gtest/gtest.h>

namespace sluice::members {
namespace {

TEST(Word, ComesBackAsItWas) {
  const Word word{.kind = WordKind::kResult,
                  .epoch = Epoch{7},
                  .key = "mean",
                  .number = 3,
                  .total = 11,
                  .offset = 6,
                  .bytes = "bytes"};
  const auto back = decodeWord(encode(word));
  ASSERT_TRUE(back.isOk());
  EXPECT_EQ(*back, word);
}

TEST(Word, AnyShorterOrLongerFormIsRefused) {
  auto bytes = encode({.kind = WordKind::kNote, .key = "k", .bytes = "v"});
  for (size_t length = 0; length < bytes.size(); ++length)
    EXPECT_FALSE(decodeWord(std::span(bytes).first(length)).isOk()) << length;
  bytes.push_back({});
  EXPECT_FALSE(decodeWord(bytes).isOk());
}

TEST(Word, AnUnknownKindIsRefused) {
  auto bytes = encode({});
  bytes.front() = std::byte{200};
  EXPECT_FALSE(decodeWord(bytes).isOk());
}

}  // namespace
}  // namespace sluice::members
