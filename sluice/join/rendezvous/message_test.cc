#include <sluice/join/rendezvous/message.h>

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace sluice::rendezvous {
namespace {

using namespace std::chrono_literals;

const Message kExample{.kind = MessageKind::kGather,
                       .code = Code::kOk,
                       .id = 0x01020304,
                       .timeout = 60s,
                       .key = "addresses",
                       .value = std::string("10.0.0.1\0x", 10)};

TEST(Message, IsDecodedAsItWasEncoded) {
  EXPECT_EQ(decode(encode(kExample)).value(), kExample);
  EXPECT_TRUE(rc::check([](uint32_t id, uint32_t millis, const std::string& value) {
    const std::string key = value.substr(0, std::min(value.size(), kLargestKeyBytes));
    const Message message{
        MessageKind::kAnswer, Code::kTimeout, id, std::chrono::milliseconds(millis), key, value};
    RC_ASSERT(decode(encode(message)).value() == message);
  }));
}

TEST(Message, CutOrLengthenedIsRefused) {
  const std::string bytes = encode(kExample);
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(decode(bytes.substr(0, size)).isOk()) << size;
  EXPECT_FALSE(decode(bytes + "x").isOk());
}

TEST(Message, WrongFieldsAreRefused) {
  const auto with = [](size_t at, uint8_t byte) {
    std::string bytes = encode(kExample);
    bytes[at] = static_cast<char>(byte);
    return decode(bytes);
  };
  for (const uint8_t kind : {0, 7, 31, 36, 255}) EXPECT_FALSE(with(0, kind).isOk()) << int{kind};
  EXPECT_FALSE(with(1, 12).isOk());    // code
  EXPECT_FALSE(with(3, 2).isOk());     // key of more than 512 bytes
  EXPECT_FALSE(with(15, 255).isOk());  // value of nearly 4 GiB
}

TEST(Message, GarbageIsRefusedOrDecodesToItself) {
  EXPECT_TRUE(rc::check([](const std::string& bytes) {
    const auto message = decode(bytes);
    if (message.isOk()) RC_ASSERT(encode(*message) == bytes);
    const auto list = decodeList(bytes);
    if (list.isOk()) RC_ASSERT(encodeList(*list) == bytes);
  }));
}

TEST(List, IsDecodedAsItWasEncodedAndNeverWhenCut) {
  EXPECT_TRUE(rc::check([](const std::vector<std::string>& values) {
    const std::string bytes = encodeList(values);
    RC_ASSERT(decodeList(bytes).value() == values);
    const size_t size = *rc::gen::inRange<size_t>(0, bytes.size());
    RC_ASSERT(!decodeList(bytes.substr(0, size)).isOk());
  }));
  EXPECT_FALSE(decodeList(std::string("\xff\xff\xff\xff", 4)).isOk());
}

TEST(Message, ALongTimeoutHasNoEnd) {
  const auto travelled = [](Duration timeout) {
    return decode(encode({.kind = MessageKind::kWait, .timeout = timeout, .key = "k"}))
        .value()
        .timeout;
  };
  EXPECT_EQ(travelled(std::chrono::hours(24 * 49)), std::chrono::hours(24 * 49));
  EXPECT_EQ(travelled(std::chrono::hours(24 * 50)), kNoEnd);
  EXPECT_EQ(travelled(kNoEnd), kNoEnd);
  EXPECT_EQ(travelled(Duration(-1)), Duration(0));
}

}  // namespace
}  // namespace sluice::rendezvous
