#include <tools/bench/replay_rank.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tools/bench/replay_memory.h>

namespace sluice::bench {
namespace {

TEST(ReplayRank, EndsWithTheParametersOfOneProcess) {
  const auto path = std::filesystem::temp_directory_path() /
                    fmt::format("sluice-replay-rank-{}.json", ::getpid());
  std::ofstream(path)
      << R"({"model": "tiny", "note": "", "unit": "fraction of one forward+backward", "tensors": [
      {"name": "a", "parameters": 1000, "forward": 0.1, "backward": 0.4},
      {"name": "b", "parameters": 7, "forward": 0.2, "backward": 0.3}]})";
  const RankTask task{.profile = path.string(),
                      .computeSeconds = 0.001,
                      .warmUp = 1,
                      .iterations = 3,
                      .update = "adam:lr=0.1",
                      .compareWithReference = true};
  const auto report = replayRank(task, base::Config(), {});  // a job of one
  std::filesystem::remove(path);
  ASSERT_TRUE(report.isOk()) << report.status().toString();
  EXPECT_EQ(report->ends.size(), 4);  // the warm-up's, and three more
  EXPECT_EQ(report->exactSteps, 4);
}

TEST(ReferenceHash, DependsOnEverythingThatCounts) {
  const Model model{{{"a", 1000, DType::kF32}, {"b", 7, DType::kF32}}};
  const auto sgd = optimizer::parseOptimizerSpec("sgd:lr=0.1").value();
  const std::vector<Rank> workers{Rank{0}, Rank{1}};
  const std::string hash = referenceHash(model, workers, sgd, 2);
  EXPECT_EQ(hash, referenceHash(model, workers, sgd, 2));
  EXPECT_EQ(referenceHash(model, workers, sgd, 0), ReplayMemory(model, Rank{0}).parametersHash());
  EXPECT_NE(hash, referenceHash(model, workers, sgd, 3));
  EXPECT_NE(hash, referenceHash(model, {Rank{0}, Rank{2}}, sgd, 2));
  EXPECT_NE(hash, referenceHash(model, {Rank{0}}, sgd, 2));
  EXPECT_NE(hash,
            referenceHash(model, workers, optimizer::parseOptimizerSpec("sgd:lr=0.2").value(), 2));
}

}  // namespace
}  // namespace sluice::bench
