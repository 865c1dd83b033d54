#include <sluice/data/optimizer/optimizer_state.h>

#include <algorithm>

#include <gtest/gtest.h>

#include <sluice/base/testing/hex.h>
#include <sluice/data/kernel/testing/test_numbers.h>

namespace sluice::optimizer {
namespace {

OptimizerState usedState(size_t elements) {
  OptimizerState state("adam", DType::kBF16, elements);
  state.countStep();
  state.countStep();
  kernel::TestNumbers numbers(elements);
  for (const size_t index : {0U, 2U}) {  // 1 stays unused
    const auto content = numbers.elements(DType::kF32, elements);
    std::ranges::copy(content, state.buffer(index).begin());
  }
  return state;
}

TEST(OptimizerState, ComesBackFromBytes) {
  for (const size_t elements : {0U, 1U, 9U, 1000U}) {
    const OptimizerState state = usedState(elements);
    const auto back = OptimizerState::fromBytes(state.toBytes());
    ASSERT_TRUE(back.isOk()) << back.status().toString();
    EXPECT_EQ(*back, state);
    EXPECT_EQ(back->steps(), 2U);
    EXPECT_TRUE(back->hasBuffer(0));
    EXPECT_FALSE(back->hasBuffer(1));
  }
}

// Checkpoints of every release of one major version are read by the next: a change here needs a new
// version of the format, and a reader of the old one (docs/stability.md).
TEST(OptimizerState, TheBytesOfVersion1AreFixed) {
  OptimizerState state("sgd", DType::kF32, 2);
  state.countStep();
  std::ranges::fill(state.buffer(0), std::byte{7});
  EXPECT_EQ(base::hexOf(state.toBytes()),
            "534c4f50"
            "01"
            "01"
            "0200000000000000"
            "0100000000000000"
            "03736764"
            "01"
            "010707070707070707");
}

TEST(OptimizerState, TakesNoMemoryUntilABufferIsAskedFor) {
  OptimizerState state("sgd", DType::kF16, 100);
  EXPECT_EQ(state.bufferBytes(), 0U);
  EXPECT_FALSE(state.hasBuffer(0));
  for (const std::byte b : state.buffer(0)) EXPECT_EQ(b, std::byte{0});
  EXPECT_EQ(state.bufferBytes(), 400U);  // f32, although the parameters are f16
}

TEST(OptimizerState, RefusesEveryShorterOrLongerText) {
  auto bytes = usedState(3).toBytes();
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_EQ(OptimizerState::fromBytes(std::span(bytes).first(length)).status().code(),
              Code::kDataLoss)
        << length;
  }
  bytes.push_back(std::byte{0});
  EXPECT_EQ(OptimizerState::fromBytes(bytes).status().code(), Code::kDataLoss);
}

TEST(OptimizerState, SurvivesAnyDamageToItsHead) {
  const auto good = usedState(3).toBytes();
  for (size_t at = 0; at < 32; ++at) {
    for (unsigned value = 0; value < 256; ++value) {
      auto bytes = good;
      bytes[at] = static_cast<std::byte>(value);
      const auto back =
          OptimizerState::fromBytes(bytes);  // refused, or a state that says what the bytes say
      if (back.isOk()) {
        EXPECT_EQ(back->toBytes(), bytes) << at << ' ' << value;
      }
    }
  }
}

}  // namespace
}  // namespace sluice::optimizer
