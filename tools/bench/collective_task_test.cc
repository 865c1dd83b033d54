#include <tools/bench/collective_task.h>

#include <gtest/gtest.h>

namespace sluice::bench {
namespace {

TEST(CollectiveTask, TravelsAsText) {
  const CollectiveTask task{
      .methods = {"ring"}, .sizes = {4096, 1 << 20}, .codec = "int8", .seconds = 0.5, .strips = 3};
  EXPECT_EQ(parseCollectiveTask(task.toText()).value(), task);
  EXPECT_FALSE(parseCollectiveTask("{}").isOk());
  const std::vector<CollectiveFigure> figures{{"ring", 4096, 0.25, 0.5}};
  EXPECT_EQ(parseCollectiveFigures(toText(figures)), figures);
  EXPECT_EQ(parseCollectiveFigures("rank 0 says hello"), std::nullopt);
  EXPECT_EQ(parseCollectiveFigures("collective-figures [{}]"), std::nullopt);
}

TEST(CollectiveTask, ALineIsFoundAgain) {
  std::vector<CollectiveFigure> figures;
  for (const uint64_t bytes : {4096U, 65'536U, 1'000'000U, 25'000'000U}) {
    figures.push_back({"ring", bytes, 300e-6 + 12e-9 * static_cast<double>(bytes), 0});
  }
  const LineFit exact = fitLine(figures);
  EXPECT_NEAR(exact.start, 300e-6, 1e-9);
  EXPECT_NEAR(exact.perByte, 12e-9, 1e-14);
  EXPECT_NEAR(exact.worst, 0, 1e-6);
  figures[2].p50 *= 1.2;
  EXPECT_GT(fitLine(figures).worst, 0.05);
}

}  // namespace
}  // namespace sluice::bench
