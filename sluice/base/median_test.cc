#include <sluice/base/median.h>

#include <gtest/gtest.h>

namespace sluice::base {
namespace {

TEST(Median, IsTheMiddleOrTheMeanOfTheMiddleTwo) {
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({9, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 9, 2}), 3);
}

}  // namespace
}  // namespace sluice::base
