#include <sluice/data/shard/changes.h>

#include <gtest/gtest.h>

namespace sluice::shard {
namespace {

using Places = std::vector<uint32_t>;

TEST(Changes, EveryWorkerHearsOfEachOnce) {
  Changes changes(2, 130);
  EXPECT_TRUE(changes.take(0).empty());
  changes.mark(Places{0, 63, 64, 129});
  EXPECT_EQ(changes.take(0), (Places{0, 63, 64, 129}));
  changes.mark(Places{7, 63});
  EXPECT_EQ(changes.take(0), (Places{7, 63}));
  EXPECT_EQ(changes.take(1), (Places{0, 7, 63, 64, 129}));
  EXPECT_TRUE(changes.take(1).empty());
}

TEST(Changes, AllIsAllAndNoMore) {
  Changes changes(1, 66);
  changes.markAll();
  const Places places = changes.take(0);
  ASSERT_EQ(places.size(), 66U);
  EXPECT_EQ(places.front(), 0U);
  EXPECT_EQ(places.back(), 65U);
}

}  // namespace
}  // namespace sluice::shard
