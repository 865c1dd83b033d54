#include <sluice/data/shard/served_state.h>

#include <algorithm>

#include <gtest/gtest.h>

#include <sluice/base/testing/hex.h>
#include <sluice/data/kernel/testing/test_numbers.h>

namespace sluice::shard {
namespace {

std::vector<ServedState> someServedStates() {
  kernel::TestNumbers numbers(3);
  std::vector<ServedState> states;
  for (const size_t elements : {5U, 0U, 7U}) {
    optimizer::OptimizerState state("adam", DType::kF16, elements);
    state.setSteps(elements);
    std::ranges::copy(numbers.elements(DType::kF32, elements), state.buffer(1).begin());
    states.push_back({"layer." + std::to_string(elements), 100 * elements, std::move(state)});
  }
  return states;
}

TEST(ServedStates, ComeBackFromBytes) {
  const auto states = someServedStates();
  for (const size_t count : {0U, 1U, 3U}) {
    const auto some = std::span(states).first(count);
    const auto back = servedStatesFromBytes(toBytes(some));
    ASSERT_TRUE(back.isOk()) << back.status().toString();
    EXPECT_TRUE(std::ranges::equal(*back, some));
  }
}

// Checkpoints of every release of one major version are read by the next: a change here needs a new
// version of the format, and a reader of the old one (docs/stability.md).
TEST(ServedStates, TheBytesOfVersion1AreFixed) {
  optimizer::OptimizerState state("sgd", DType::kF32, 0);
  EXPECT_EQ(base::hexOf(toBytes(std::vector<ServedState>{{"w", 9, std::move(state)}})),
            "534c5356"
            "01"
            "01000000"
            "0100000077"
            "0900000000000000"
            "1b00000000000000"
            "534c4f500101000000000000000000000000000000000373676400");
}

TEST(ServedStates, RefuseEveryShorterOrLongerText) {
  auto bytes = toBytes(someServedStates());
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_EQ(servedStatesFromBytes(std::span(bytes).first(length)).status().code(),
              Code::kDataLoss)
        << length;
  }
  bytes.push_back(std::byte{0});
  EXPECT_EQ(servedStatesFromBytes(bytes).status().code(), Code::kDataLoss);
}

TEST(ServedStates, SurviveAnyDamage) {
  const auto good = toBytes(someServedStates());
  for (size_t at = 0; at < good.size(); ++at) {
    for (const unsigned value : {0U, 1U, 127U, 255U}) {
      auto bytes = good;
      bytes[at] = static_cast<std::byte>(value);
      const auto back =
          servedStatesFromBytes(bytes);  // refused, or states that say what the bytes say
      if (back.isOk()) {
        EXPECT_EQ(toBytes(*back), bytes) << at << ' ' << value;
      }
    }
  }
}

}  // namespace
}  // namespace sluice::shard
