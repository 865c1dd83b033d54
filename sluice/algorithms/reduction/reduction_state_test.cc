#include <sluice/algorithms/reduction/reduction_state.h>

#include <gtest/gtest.h>

#include <sluice/base/testing/hex.h>

namespace sluice::algorithms {
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

// Checkpoints of every release of one major version are read by the next: a change here needs a new
// version of the format, and a reader of the old one (docs/stability.md).
TEST(ReductionState, TheBytesOfVersion1AreFixed) {
  EXPECT_EQ(base::hexOf(someState().toBytes()),
            "53545253"
            "01"
            "03000000"
            "1100000000000000"
            "02000000"
            "02000000"
            "04000000636f6e76"
            "0108000000000000000101010101010101"
            "00"
            "0c00000000000000000000000000000000000000"
            "0000000000000000"
            "020000006663"
            "010000000000000000"
            "01040000000000000000000000"
            "0000000000000000"
            "05000000000000000707070707");
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
}  // namespace sluice::algorithms
