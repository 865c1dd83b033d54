#include <tools/bench/rank_task.h>

#include <gtest/gtest.h>

namespace sluice::bench {
namespace {

const RankTask kTask{.profile = "a \"b\"/c.json",
                     .computeSeconds = 1.0625,
                     .warmUp = 3,
                     .iterations = 4,
                     .update = "sgd:lr=0.1",
                     .watchNetwork = true,
                     .compareWithReference = true,
                     .unevenness = {1, 3, 10, 2.5}};

TEST(RankTask, IsReadAsItWasWritten) {
  const auto read = parseRankTask(kTask.toText());
  ASSERT_TRUE(read.isOk()) << read.status().toString();
  EXPECT_EQ(*read, kTask);
}

TEST(RankTask, NonsenseIsRefused) {
  RankTask nothing = kTask;
  nothing.iterations = 0;
  RankTask instant = kTask;
  instant.computeSeconds = 0;
  for (const std::string& text : {std::string("fast"), std::string("{}"), std::string("[1]"),
                                  nothing.toText(), instant.toText()}) {
    EXPECT_EQ(parseRankTask(text).status().code(), Code::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace sluice::bench
