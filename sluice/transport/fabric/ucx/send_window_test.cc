#include <sluice/transport/fabric/ucx/send_window.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <sluice/transport/fabric/ucx/peer.h>

namespace sluice::fabric::ucx {
namespace {

TEST(SendWindow, ClosesWhenFullAndOpensWhenTheReceiverHasTaken) {
  SendWindow window(10'000);
  EXPECT_TRUE(window.admits(9000));
  window.sent(9000);
  EXPECT_FALSE(window.admits(9000));
  EXPECT_TRUE(window.admits(100));
  window.sent(100);
  EXPECT_TRUE(window.taken(1));
  EXPECT_TRUE(window.admits(9000));
  EXPECT_FALSE(window.isEmpty());
  EXPECT_TRUE(window.taken(2));
  EXPECT_TRUE(window.isEmpty());
  EXPECT_EQ(window.bytes(), 0U);
}

TEST(SendWindow, LetsAMessageLargerThanItselfGoAlone) {
  SendWindow window(1000);
  EXPECT_TRUE(window.admits(1 << 30));
  window.sent(1 << 30);
  EXPECT_FALSE(window.admits(0));
}

TEST(SendWindow, BoundsTheNumberOfEmptyMessages) {
  SendWindow window(100'000);
  size_t count = 0;
  for (; window.admits(0); ++count) window.sent(0);
  EXPECT_LT(count, 1000U);
}

TEST(SendWindow, DoesNotBelieveWhatCannotBe) {
  SendWindow window(1000);
  window.sent(10);
  window.sent(10);
  EXPECT_FALSE(window.taken(3));
  EXPECT_TRUE(window.taken(2));
  EXPECT_FALSE(window.taken(1));
  EXPECT_TRUE(window.taken(2));
}

TEST(Taken, IsTheUnbrokenRunWhateverTheOrder) {
  rc::check([] {
    const auto count = *rc::gen::inRange<uint64_t>(1, 60);
    std::vector<uint64_t> order(count);
    std::iota(order.begin(), order.end(), 0);
    std::ranges::shuffle(order, std::mt19937_64(*rc::gen::arbitrary<uint64_t>()));
    Taken taken;
    std::set<uint64_t> all;
    for (const uint64_t sequence : order) {
      taken.mark(sequence);
      all.insert(sequence);
      uint64_t run = 0;
      while (all.contains(run)) ++run;
      RC_ASSERT(taken.upTo() == run);
    }
  });
}

}  // namespace
}  // namespace sluice::fabric::ucx
