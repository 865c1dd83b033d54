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

}  // namespace
}  // namespace sluice::base
