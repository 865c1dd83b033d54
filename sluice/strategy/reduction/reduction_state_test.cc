#include <sluice/strategy/reduction/reduction_state.h>

#include <gtest/gtest.h>

namespace sluice::strategy {
namespace {

using Bytes = std::vector<std::byte>;

ReductionState someState() {
  return {
      .rank = 3,
      .steps = 17,
      .rounds = 2,
      .tensors = {
          {.name = "conv", .delayed = {Bytes(8, std::byte{1}), std::nullopt}, .owed = Bytes(12)},
          {.name = "fc", .delayed = {Bytes(), Bytes(4)}, .optimizer = Bytes(5, std::byte{7})}}};
}

TEST(ReductionState, ReadsWhatItWrote) {
  const auto state = ReductionState::fromBytes(someState().toBytes());
  ASSERT_TRUE(state.isOk()) << state.status().toString();
  EXPECT_EQ(*state, someState());
}

TEST(ReductionState, BelievesNothing) {
  const Bytes bytes = someState().toBytes();
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_EQ(ReductionState::fromBytes(std::span(bytes).first(length)).status().code(),
              Code::kDataLoss)
        << length;
  }
  Bytes longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(ReductionState::fromBytes(longer).isOk());
  for (size_t i = 0; i < bytes.size();
       ++i) {  // whatever it says then, it says it and does not crash
    Bytes wrong = bytes;
    wrong[i] = std::byte{0xff};
    (void)ReductionState::fromBytes(wrong);
  }
}

}  // namespace
}  // namespace sluice::strategy
