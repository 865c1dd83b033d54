#include <tools/sim/host_trace.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sluice/base/options.h>
#include <tools/sim/simulation.h>
#include <tools/trace/critical_path.h>
#include <tools/trace/one_clock.h>
#include <tools/trace/trace_reader.h>

namespace sluice::sim {
namespace {

class TraceFolder final {
 public:
  TraceFolder()
      : path_(std::filesystem::temp_directory_path() /
              fmt::format("sluice-host-trace-{}", ::getpid())) {}
  ~TraceFolder() { std::filesystem::remove_all(path_); }
  TraceFolder(const TraceFolder&) = delete;
  TraceFolder& operator=(const TraceFolder&) = delete;
  std::string path() const { return path_.string(); }

 private:
  const std::filesystem::path path_;
};

SimulationOptions tracedJob(const TraceFolder& folder) {
  SimulationOptions options{.profile = "resnet18", .algorithm = "sluice", .computeSeconds = 0.02};
  options.warmUp = 1;
  options.iterations = 4;
  options.network.hosts = 4;
  options.traceDirectory = folder.path();
  EXPECT_TRUE(options.config.set(option::kShrink, "64").isOk());
  // Few messages: sanitizers make reading traces slow.
  EXPECT_TRUE(options.config.set(option::kSliceElements, "100000").isOk());
  return options;
}

TEST(HostTrace, TheCriticalPathOfAllHostsAddsUpToTheIterations) {
  const TraceFolder folder;
  const auto result = simulate(tracedJob(folder));
  ASSERT_TRUE(result.isOk()) << result.status().toString();
  auto traces = trace::readDirectory(folder.path(), "");
  ASSERT_TRUE(traces.isOk()) << traces.status().toString();
  ASSERT_EQ(traces->size(), 4U);
  const auto clocks = trace::putOnOneClock(*traces);
  ASSERT_TRUE(clocks.isOk()) << clocks.status().toString();
  for (const auto& clock : *clocks) EXPECT_EQ(clock.ahead, Duration{});
  const auto iterations = trace::criticalPaths(*traces);
  ASSERT_GE(iterations.size(), 3U);
  double all = 0;
  for (const auto& iteration : iterations) {
    EXPECT_NEAR(base::seconds(iteration.explained()) / base::seconds(iteration.length()), 1, 0.03);
    all += base::seconds(iteration.length());
  }
  const double mean = all / static_cast<double>(iterations.size());
  EXPECT_NEAR(mean / result->iterationSeconds, 1, 0.15);
}

TEST(HostTrace, OnlyTheChosenHostsAreWritten) {
  const TraceFolder folder;
  SimulationOptions options = tracedJob(folder);
  options.tracedHosts = {0, 3};
  const uint64_t traced = simulate(options).value().traceHash;
  const auto traces = trace::readDirectory(folder.path(), "");
  ASSERT_TRUE(traces.isOk()) << traces.status().toString();
  ASSERT_EQ(traces->size(), 2U);
  EXPECT_EQ(traces->front().rank, Rank{0});
  EXPECT_EQ(traces->back().rank, Rank{3});
  for (const auto& each : *traces) {
    EXPECT_FALSE(each.events.empty());
    EXPECT_FALSE(each.waits.empty());
    EXPECT_EQ(each.lost, 0U);
    EXPECT_TRUE(std::ranges::is_sorted(each.waits, {}, &WaitEvent::to));
  }
  options.traceDirectory.clear();  // a trace changes nothing
  EXPECT_EQ(simulate(options).value().traceHash, traced);
}

}  // namespace
}  // namespace sluice::sim
