#include <sluice/sim/simulation.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sluice/base/options.h>
#include <sluice/base/testing/short_tests.h>

namespace sluice::sim {
namespace {

using namespace std::chrono_literals;

// A small model whose layers are cut into several slices, and some not at all.
class ProfileFile final {
 public:
  ProfileFile()
      : path_(std::filesystem::temp_directory_path() /
              fmt::format("sluice-simulation-{}.json", ::getpid())) {
    std::ofstream(path_)
        << R"({"model": "small", "note": "", "unit": "fraction of one forward+backward", "tensors": [
        {"name": "a", "parameters": 40003, "forward": 0.1, "backward": 0.2},
        {"name": "b", "parameters": 7, "forward": 0.0, "backward": 0.0},
        {"name": "c", "parameters": 100000, "forward": 0.2, "backward": 0.3},
        {"name": "d", "parameters": 1025, "forward": 0.1, "backward": 0.1}]})";
  }
  ~ProfileFile() { std::filesystem::remove(path_); }
  ProfileFile(const ProfileFile&) = delete;
  ProfileFile& operator=(const ProfileFile&) = delete;
  std::string path() const { return path_.string(); }

 private:
  const std::filesystem::path path_;
};

SimulationOptions smallJob(const ProfileFile& file, std::string_view algorithm, uint32_t hosts) {
  SimulationOptions options{
      .profile = file.path(), .algorithm = std::string(algorithm), .computeSeconds = 0.005};
  options.warmUp = 1;
  options.iterations = 2;
  options.isExact = true;
  options.network.hosts = hosts;
  options.network.rate = Rate{1'000'000'000};
  return options;
}

TEST(Simulation, EndsWithTheBitsOfOneProcessWhateverTheAlgorithm) {
  const ProfileFile file;
  for (const char* algorithm :
       {"kvstore", "slicing", "p3", "sluice", "allreduce", "wfbp", "mgwfbp"}) {
    const auto result = simulate(smallJob(file, algorithm, 8));
    ASSERT_TRUE(result.isOk()) << algorithm << ": " << result.status().toString();
    EXPECT_GE(result->iterationSeconds, result->boundSeconds) << algorithm;
  }
}

TEST(Simulation, EndsWithTheBitsOfOneProcessOnABadNetworkWithBusyHosts) {
  const ProfileFile file;
  SimulationOptions options = smallJob(file, "sluice", base::testsAreShort() ? 16 : 64);
  options.network.topology = {.hostsPerRack = 8, .oversubscription = 4};
  options.network.loss = 0.002;
  options.network.jitter = 1;
  options.network.queueBytes = 64 << 10;
  options.costs = parseCosts("plain").value();
  const auto result = simulate(options);
  ASSERT_TRUE(result.isOk()) << result.status().toString();
  EXPECT_GT(result->segmentsDropped, 0U);
  EXPECT_GT(result->busiestLoop, 0);
}

TEST(Simulation, EndsWithTheBitsOfOneProcessThoughLinksAreCut) {
  const ProfileFile file;
  SimulationOptions options = smallJob(file, "sluice", 8);
  const auto whole = simulate(options);
  options.faults = parseFaults("cut:3@4ms+15ms").value();
  options.randomCuts = 3;
  const auto cut = simulate(options);
  ASSERT_TRUE(whole.isOk() && cut.isOk()) << cut.status().toString();
  EXPECT_GT(cut->segmentsDropped, whole->segmentsDropped);
  EXPECT_GT(cut->iterationSeconds, whole->iterationSeconds);
}

TEST(Simulation, ALostHostIsNamedByTheOthers) {
  const ProfileFile file;
  for (const char* algorithm : {"kvstore", "p3", "sluice", "allreduce"}) {
    SimulationOptions options = smallJob(file, algorithm, 8);
    options.faults = parseFaults("lose:5@8ms").value();
    const Status status = simulate(options).status();
    EXPECT_EQ(status.code(), Code::kPeerLost) << algorithm;
    EXPECT_NE(status.message().find("rank 5 is lost"), std::string::npos) << status.message();
  }
}

TEST(Simulation, HasTheSameTraceForTheSameSeedOnly) {
  const ProfileFile file;
  SimulationOptions options = smallJob(file, "sluice", 8);
  options.network.jitter = 0.1;
  const auto traceOf = [&](uint64_t seed) {
    options.network.seed = seed;
    return simulate(options).value().traceHash;
  };
  EXPECT_EQ(traceOf(1), traceOf(1));
  EXPECT_NE(traceOf(1), traceOf(2));
}

TEST(Simulation, AHostsOwnWorkTakesTime) {
  const ProfileFile file;
  SimulationOptions options = smallJob(file, "sluice", 4);
  const auto fast = simulate(options);
  options.costs = {.messageSent = 500'000, .messageReceived = 500'000};
  const auto slow = simulate(options);
  ASSERT_TRUE(fast.isOk() && slow.isOk());
  EXPECT_EQ(fast->busiestLoop, 0);
  EXPECT_EQ(slow->messages, fast->messages);
  EXPECT_GT(slow->iterationSeconds, 1.1 * fast->iterationSeconds);
}

// Sizes are divided and counted as often, so messages are the same and times nearly so.
TEST(Simulation, ShrunkAndWholeTakeTheSameTimeInTheSameMessages) {
  for (const char* algorithm : {"sluice", "kvstore"}) {
    SimulationOptions options{.profile = base::testsAreShort() ? "resnet18" : "resnet50",
                              .algorithm = algorithm,
                              .computeSeconds = 0.16};
    options.warmUp = 1;
    options.iterations = 1;
    options.network.hosts = base::testsAreShort() ? 4 : 16;
    const auto whole = simulate(options);
    ASSERT_TRUE(options.config.set(option::kShrink, "64").isOk());
    const auto shrunk = simulate(options);
    ASSERT_TRUE(whole.isOk()) << whole.status().toString();
    ASSERT_TRUE(shrunk.isOk()) << shrunk.status().toString();
    EXPECT_EQ(shrunk->messages, whole->messages) << algorithm;
    EXPECT_NEAR(shrunk->iterationSeconds / whole->iterationSeconds, 1, 0.01) << algorithm;
  }
}

TEST(Simulation, RefusesWhatCannotBe) {
  const ProfileFile file;
  SimulationOptions options = smallJob(file, "sluice", 1);
  EXPECT_EQ(simulate(options).status().code(), Code::kInvalidArgument);
  options = smallJob(file, "asp", 4);
  EXPECT_EQ(simulate(options).status().code(), Code::kInvalidArgument);
  options = smallJob(file, "sluice", 4);
  ASSERT_TRUE(options.config.set(option::kShrink, "8").isOk());
  EXPECT_EQ(simulate(options).status().code(), Code::kInvalidArgument);
  options = smallJob(file, "nosuch", 4);
  EXPECT_FALSE(simulate(options).isOk());
}

}  // namespace
}  // namespace sluice::sim
