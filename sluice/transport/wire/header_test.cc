#include <sluice/transport/wire/header.h>

#include <sodium.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace sluice::wire {
namespace {

secret::Key someKey(unsigned char seed = 7) {
  secret::Key key;
  std::ranges::fill(key.mutableBytes(), static_cast<std::byte>(seed));
  return key;
}

Header someHeader() {
  return {.epoch = Epoch{4},
          .source = Rank{2},
          .destination = Rank{3},
          .lane = Lane::kUrgent,
          .sequence = 9,
          .step = Step{100},
          .tensor = TensorId{5},
          .slice = SliceId{17},
          .stage = Stage::kPublish,
          .flags = Flags::kNone,
          .dtype = DType::kF32,
          .length = 4000};
}

Expectations expectationsFor(const Header& header) {
  return {.epoch = header.epoch,
          .source = header.source,
          .destination = header.destination,
          .lane = header.lane,
          .sequence = header.sequence};
}

// Puts the right check under bytes that were changed after sealing, as only a holder of the key
// can.
void sealAgain(HeaderBytes& bytes, const secret::Key& key) {
  constexpr size_t kChecked = 56;
  crypto_generichash(reinterpret_cast<unsigned char*>(bytes.data()) + kChecked,
                     kHeaderBytes - kChecked, reinterpret_cast<const unsigned char*>(bytes.data()),
                     kChecked, reinterpret_cast<const unsigned char*>(key.bytes().data()),
                     key.bytes().size());
}

Header anyHeader() {
  return {
      .epoch = *rc::gen::map<uint32_t>([](auto v) { return Epoch{v}; }),
      .source = *rc::gen::map<uint32_t>([](auto v) { return Rank{v}; }),
      .destination = *rc::gen::map<uint32_t>([](auto v) { return Rank{v}; }),
      .lane = *rc::gen::element(Lane::kControl, Lane::kUrgent, Lane::kBulk),
      .sequence = *rc::gen::arbitrary<uint64_t>(),
      .step = *rc::gen::map<uint64_t>([](auto v) { return Step{v}; }),
      .tensor = *rc::gen::map<uint32_t>([](auto v) { return TensorId{v}; }),
      .slice = *rc::gen::map<uint32_t>([](auto v) { return SliceId{v}; }),
      .stage = *rc::gen::elementOf(kPath),
      .flags = *rc::gen::element(Flags::kNone, Flags::kEncoded, Flags::kHeartbeat | Flags{0x4200}),
      .dtype =
          *rc::gen::element(DType::kBytes, DType::kF32, DType::kF64, DType::kBF16, DType::kF16),
      .length = *rc::gen::inRange<uint64_t>(0, kMaxLength / 8 + 1) * 8};
}

TEST(Header, WhatIsSealedIsOpened) {
  EXPECT_TRUE(rc::check([] {
    const Header header = anyHeader();
    const auto opened = open(seal(header, someKey()), someKey(), expectationsFor(header));
    RC_ASSERT(std::holds_alternative<Header>(opened));
    RC_ASSERT(std::get<Header>(opened) == header);
  }));
}

TEST(Header, AnyChangedBitIsNoticed) {
  const Header header = someHeader();
  const HeaderBytes bytes = seal(header, someKey());
  for (size_t bit = 0; bit < kHeaderBytes * 8; ++bit) {
    HeaderBytes changed = bytes;
    changed[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    const auto opened = open(changed, someKey(), expectationsFor(header));
    ASSERT_TRUE(std::holds_alternative<Drop>(opened)) << "bit " << bit;
    EXPECT_TRUE(endsStream(std::get<Drop>(opened))) << "bit " << bit;
  }
}

TEST(Header, AnotherKeyIsABadCheck) {
  const auto opened =
      open(seal(someHeader(), someKey(1)), someKey(2), expectationsFor(someHeader()));
  EXPECT_EQ(std::get<Drop>(opened), Drop::kBadCheck);
}

TEST(Header, EveryFieldIsCheckedEvenUnderAGoodSeal) {
  struct Case {
    Drop drop;
    std::function<void(HeaderBytes&)> change;
  };
  const auto setByte = [](size_t at, uint8_t value) {
    return [=](HeaderBytes& bytes) { bytes[at] = static_cast<std::byte>(value); };
  };
  const std::vector<Case> cases{
      {Drop::kBadMagic, setByte(0, 'X')},      {Drop::kBadVersion, setByte(4, kVersion + 1)},
      {Drop::kTooLong, setByte(52, 1)},        {Drop::kTooLong, setByte(55, 0xff)},
      {Drop::kOutOfSequence, setByte(16, 8)},  {Drop::kOutOfSequence, setByte(16, 10)},
      {Drop::kWrongSource, setByte(12, 3)},    {Drop::kWrongDestination, setByte(44, 2)},
      {Drop::kWrongLane, setByte(42, 2)},      {Drop::kWrongLane, setByte(42, 200)},
      {Drop::kWrongEpoch, setByte(8, 3)},      {Drop::kWrongEpoch, setByte(8, 5)},
      {Drop::kUnknownFlags, setByte(6, 16)},   {Drop::kUnknownStage, setByte(40, kPath.size())},
      {Drop::kUnknownStage, setByte(40, 255)}, {Drop::kUnknownDType, setByte(41, 5)},
      {Drop::kUnknownDType, setByte(41, 255)}, {Drop::kRaggedLength, setByte(48, 0xa1)},
      {Drop::kReserved, setByte(43, 1)},
  };
  for (const auto& [drop, change] : cases) {
    HeaderBytes bytes = seal(someHeader(), someKey());
    change(bytes);
    sealAgain(bytes, someKey());
    const auto opened = open(bytes, someKey(), expectationsFor(someHeader()));
    ASSERT_TRUE(std::holds_alternative<Drop>(opened)) << name(drop);
    EXPECT_EQ(name(std::get<Drop>(opened)), name(drop));
  }
}

TEST(Header, AnEncodedPayloadMayHaveAnyLength) {
  Header header = someHeader();
  header.length = 3;
  header.flags = Flags::kEncoded;
  EXPECT_TRUE(std::holds_alternative<Header>(
      open(seal(header, someKey()), someKey(), expectationsFor(header))));
}

// A reader that takes a goodbye for the end would take its payload for bytes that follow.
TEST(Header, AGoodbyeHasNoPayload) {
  Header header = someHeader();
  header.flags = Flags::kGoodbye;
  const auto opened = open(seal(header, someKey()), someKey(), expectationsFor(header));
  EXPECT_EQ(std::get<Drop>(opened), Drop::kTooLong);
  EXPECT_TRUE(endsStream(Drop::kTooLong));
  header.length = 0;
  EXPECT_TRUE(std::holds_alternative<Header>(
      open(seal(header, someKey()), someKey(), expectationsFor(header))));
}

TEST(Header, AReceiverMaySetALowerBoundOnTheLength) {
  Expectations expected = expectationsFor(someHeader());
  expected.maxLength = someHeader().length;
  EXPECT_TRUE(
      std::holds_alternative<Header>(open(seal(someHeader(), someKey()), someKey(), expected)));
  expected.maxLength -= 1;
  EXPECT_EQ(std::get<Drop>(open(seal(someHeader(), someKey()), someKey(), expected)),
            Drop::kTooLong);
}

// Two releases that agree on the version must agree on every byte: a change here needs a new
// kVersion.
TEST(Header, TheBytesOfVersion2AreFixed) {
  const HeaderBytes bytes = seal(someHeader(), someKey());
  std::string hex(2 * kHeaderBytes + 1, '\0');
  sodium_bin2hex(hex.data(), hex.size(), reinterpret_cast<const unsigned char*>(bytes.data()),
                 bytes.size());
  hex.pop_back();
  EXPECT_EQ(hex,
            "534c5543"
            "0200"
            "0000"
            "04000000"
            "02000000"
            "0900000000000000"
            "6400000000000000"
            "05000000"
            "11000000"
            "06"
            "01"
            "01"
            "00"
            "03000000"
            "a00f000000000000"
            "0bdfc35b99018560344238231b1ab69b");
}

TEST(Header, PrintsItself) {
  EXPECT_EQ(someHeader().toString(),
            "epoch 4, 2 -> 3 urgent #9: step 100 tensor 5 slice 17 publish f32 4000 B");
}

TEST(DropCounters, CountByReason) {
  DropCounters drops;
  EXPECT_EQ(drops.toString(), "none");
  drops.count(Drop::kBadCheck);
  drops.count(Drop::kBadCheck);
  drops.count(Drop::kWrongEpoch);
  EXPECT_EQ(drops.of(Drop::kBadCheck), 2U);
  EXPECT_EQ(drops.total(), 3U);
  EXPECT_EQ(drops.toString(), "bad check 2, wrong epoch 1");
}

TEST(Drop, EveryReasonHasAName) {
  for (size_t i = 0; i < kDropReasons; ++i) EXPECT_NE(name(static_cast<Drop>(i)), "?");
}

}  // namespace
}  // namespace sluice::wire
