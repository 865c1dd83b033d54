#include <sluice/base/histogram.h>

#include <algorithm>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace sluice::base {
namespace {

TEST(Histogram, IsEmptyAtFirst) {
  const Histogram histogram;
  EXPECT_EQ(histogram.count(), 0U);
  EXPECT_EQ(histogram.quantile(0.99), Duration::zero());
}

TEST(Histogram, QuantilesAreAtMostASixteenthTooHigh) {
  std::mt19937_64 random(7);
  std::vector<int64_t> values;
  Histogram histogram;
  // The values are below 2^48 ns, so that the sum of all fits too.
  for (int i = 0; i < 20'000; ++i) {
    values.push_back(static_cast<int64_t>(random() >> (16 + random() % 48)));
    histogram.record(Duration(values.back()));
  }
  std::ranges::sort(values);
  for (const double q : {0.0, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0}) {
    const auto rank =
        static_cast<size_t>(std::max(1.0, std::ceil(q * static_cast<double>(values.size()))));
    const auto exact = static_cast<double>(values[rank - 1]);
    const auto got = static_cast<double>(histogram.quantile(q).count());
    EXPECT_GE(got, exact) << q;
    EXPECT_LE(got, exact * (1 + 1.0 / 16)) << q;
  }
  EXPECT_EQ(histogram.max().count(), values.back());
}

TEST(Histogram, TheLongestDurationHasABucket) {
  Histogram histogram;
  histogram.record(Duration::max());
  EXPECT_EQ(histogram.quantile(0.5), Duration::max());
}

TEST(Histogram, ASumThatNoLongerFitsStaysAtTheLongestDuration) {
  Histogram a;
  a.record(Duration::max());
  a.record(Duration(1));
  EXPECT_EQ(a.sum(), Duration::max());
  Histogram b;
  b.record(Duration::max());
  b.add(a);
  EXPECT_EQ(b.sum(), Duration::max());
  EXPECT_EQ(b.count(), 3U);
}

TEST(Histogram, AddsUp) {
  Histogram a;
  Histogram b;
  a.record(Duration(3));
  b.record(Duration(5));
  b.record(Duration(5));
  a.add(b);
  EXPECT_EQ(a.count(), 3U);
  EXPECT_EQ(a.sum(), Duration(13));
  EXPECT_EQ(a.max(), Duration(5));
  EXPECT_EQ(a.quantile(0.3), Duration(3));
  EXPECT_EQ(a.quantile(0.5), Duration(5));
}

}  // namespace
}  // namespace sluice::base
