#include <sluice/base/random.h>

#include <gtest/gtest.h>

namespace sluice::base {
namespace {

// The first numbers of the authors' program for the seed 1234567.
TEST(Splitmix64, DrawsTheNumbersOfItsAuthors) {
  EXPECT_EQ(splitmix64(1234567), 6457827717110365317U);
  EXPECT_EQ(splitmix64(1234567, 1), 3203168211198807973U);
  EXPECT_EQ(splitmix64(1234567, 2), 9817491932198370423U);
}

TEST(FromZeroToOne, NeverReachesOne) {
  EXPECT_EQ(fromZeroToOne(0), 0);
  EXPECT_EQ(fromZeroToOne(uint64_t{1} << 63U), 0.5);
  EXPECT_LT(fromZeroToOne(~uint64_t{0}), 1);
}

}  // namespace
}  // namespace sluice::base
