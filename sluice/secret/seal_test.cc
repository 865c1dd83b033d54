#include <sluice/secret/seal.h>

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace sluice::secret {
namespace {

std::span<const std::byte> bytesOf(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST(Seal, WhatWasSealedIsOpenedInOrder) {
  EXPECT_TRUE(rc::check([](const std::vector<std::string>& messages, const std::string& label) {
    const Key key = Key::random();
    Sealer sealer(key);
    Opener opener(key);
    for (const auto& message : messages) {
      std::string sealed;
      sealer.seal(bytesOf(message), bytesOf(label), sealed);
      RC_ASSERT(sealed.size() == message.size() + kSealBytes);
      std::string opened;
      RC_ASSERT(opener.open(bytesOf(sealed), bytesOf(label), opened).isOk());
      RC_ASSERT(opened == message);
    }
  }));
}

TEST(Seal, AnyChangeIsNoticed) {
  const Key key = Key::random();
  const std::string plain = "rank 3 is at 10.0.0.3:4000";
  const std::string label = "len";
  Sealer sealer(key);
  std::string sealed;
  sealer.seal(bytesOf(plain), bytesOf(label), sealed);
  for (size_t bit = 0; bit < 8 * sealed.size(); ++bit) {
    std::string changed = sealed;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    std::string opened = "before";
    EXPECT_EQ(Opener(key).open(bytesOf(changed), bytesOf(label), opened).code(), Code::kDataLoss);
    EXPECT_EQ(opened, "before");
  }
  std::string opened;
  EXPECT_FALSE(Opener(key).open(bytesOf(sealed), bytesOf("lem"), opened).isOk());
  EXPECT_FALSE(Opener(Key::random()).open(bytesOf(sealed), bytesOf(label), opened).isOk());
  EXPECT_FALSE(Opener(key).open(bytesOf(sealed).first(10), bytesOf(label), opened).isOk());
  EXPECT_TRUE(Opener(key).open(bytesOf(sealed), bytesOf(label), opened).isOk());
}

TEST(Seal, ARepeatedOrSkippedMessageIsNoticed) {
  const Key key = Key::random();
  Sealer sealer(key);
  std::string first;
  std::string second;
  sealer.seal(bytesOf("one"), {}, first);
  sealer.seal(bytesOf("two"), {}, second);
  std::string opened;
  Opener repeated(key);
  ASSERT_TRUE(repeated.open(bytesOf(first), {}, opened).isOk());
  EXPECT_FALSE(repeated.open(bytesOf(first), {}, opened).isOk());
  EXPECT_FALSE(Opener(key).open(bytesOf(second), {}, opened).isOk());
}

}  // namespace
}  // namespace sluice::secret
