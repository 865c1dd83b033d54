#include <sluice/observer.h>

#include <algorithm>
#include <array>
#include <set>

#include <gtest/gtest.h>

#include <sluice/base/ids.h>

namespace sluice::plan {
namespace {

TEST(Stage, ThePathHasEveryStageOnceWithANameOfItsOwn) {
  std::set<size_t> numbers;
  std::set<std::string_view> names;
  for (const Stage stage : kPath) {
    EXPECT_LT(static_cast<size_t>(stage), kPath.size());  // arrays have one element for each
    EXPECT_TRUE(numbers.insert(static_cast<size_t>(stage)).second);
    EXPECT_TRUE(names.insert(name(stage)).second);
  }
  EXPECT_EQ(names.count("?"), 0U);
}

TEST(Stage, CopiesLieBetweenTheDeviceAndTheNetwork) {
  const auto placeOf = [](Stage stage) { return std::ranges::find(kPath, stage) - kPath.begin(); };
  EXPECT_EQ(placeOf(Stage::kStageOut), placeOf(Stage::kReady) + 1);
  EXPECT_LT(placeOf(Stage::kStageOut), placeOf(Stage::kQueued));
  EXPECT_EQ(placeOf(Stage::kStageIn), placeOf(Stage::kPublish) + 1);
  EXPECT_LT(placeOf(Stage::kStageIn), placeOf(Stage::kApplied));
}

// Numbers of stages travel in headers.
TEST(Stage, NumbersAreFixed) {
  const std::array inOrder{Stage::kReady,    Stage::kQueued, Stage::kPush,    Stage::kCollect,
                           Stage::kReduce,   Stage::kUpdate, Stage::kPublish, Stage::kApplied,
                           Stage::kStageOut, Stage::kStageIn};
  for (size_t i = 0; i < inOrder.size(); ++i) EXPECT_EQ(static_cast<size_t>(inOrder[i]), i);
}

TEST(Ids, PrintAsNumbers) {
  EXPECT_EQ(fmt::format("rank {} step {}", Rank{3}, Step{7}), "rank 3 step 7");
  EXPECT_EQ(next(Step{7}), Step{8});
}

}  // namespace
}  // namespace sluice::plan
