#include <sluice/observer.h>

#include <set>

#include <gtest/gtest.h>

#include <sluice/types/ids.h>

namespace sluice::plan {
namespace {

TEST(Stage, ThePathNamesEveryStageOnceInItsOrder) {
  std::set<std::string_view> names;
  for (size_t i = 0; i < kPath.size(); ++i) {
    EXPECT_EQ(static_cast<size_t>(kPath[i]), i);
    EXPECT_TRUE(names.insert(name(kPath[i])).second);
  }
  EXPECT_EQ(names.count("?"), 0U);
}

TEST(Ids, PrintAsNumbers) {
  EXPECT_EQ(fmt::format("rank {} step {}", Rank{3}, Step{7}), "rank 3 step 7");
  EXPECT_EQ(next(Step{7}), Step{8});
}

}  // namespace
}  // namespace sluice::plan
