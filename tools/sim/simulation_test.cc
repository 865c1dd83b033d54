#include <tools/sim/simulation.h>

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

// A model whose layers are cut into several slices, and some not at all. `parameters` of its
// largest tensor.
class ProfileFile final {
 public:
  explicit ProfileFile(uint64_t parameters = 100'000)
      : path_(std::filesystem::temp_directory_path() /
              fmt::format("sluice-simulation-{}.json", ::getpid())) {
    std::ofstream(path_) << fmt::format(
        R"({{"model": "small", "note": "", "unit": "fraction of one forward+backward", "tensors": [
        {{"name": "a", "parameters": 40003, "forward": 0.1, "backward": 0.2}},
        {{"name": "b", "parameters": 7, "forward": 0.0, "backward": 0.0}},
        {{"name": "c", "parameters": {}, "forward": 0.2, "backward": 0.3}},
        {{"name": "d", "parameters": 1025, "forward": 0.1, "backward": 0.1}}]}})",
        parameters);
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

TEST(Simulation, EndsWithTheBitsOfOneProcessWithTwoMillionParametersOnSixtyFourHosts) {
  const ProfileFile file(2'000'000 - 40'003 - 7 - 1025);
  SimulationOptions options = smallJob(file, "sluice", base::testsAreShort() ? 8 : 64);
  options.computeSeconds = 0.03;
  options.warmUp = 0;
  const auto result = simulate(options);
  EXPECT_TRUE(result.isOk()) << result.status().toString();
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

TEST(Simulation, ASlowLinkSlowsAllWhileItIsSlow) {
  const ProfileFile file;
  SimulationOptions options = smallJob(file, "sluice", 4);
  options.iterations = 10;
  const auto secondsWith = [&](const char* faults) {
    options.faults = parseFaults(faults).value();
    const auto result = simulate(options);
    EXPECT_TRUE(result.isOk()) << faults << ": " << result.status().toString();
    return result.isOk() ? result->iterationSeconds : 0;
  };
  const double whole = secondsWith("");
  const double awhile = secondsWith("rate:2=100mbit@10ms+50ms");
  const double always = secondsWith("rate:2=100mbit@0ms+1h");
  EXPECT_GT(awhile, 1.2 * whole);
  EXPECT_GT(always, 1.2 * awhile);
  options.network.topology.hosts[2] = {Rate{100'000'000}, Rate{100'000'000}};
  const auto slow = simulate(options);
  ASSERT_TRUE(slow.isOk()) << slow.status().toString();
  EXPECT_NEAR(slow->iterationSeconds / always, 1, 0.1);
  // The bound takes slices as shared equally; the slow host may serve a little less.
  EXPECT_GE(slow->iterationSeconds, 0.97 * slow->boundSeconds);
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

// One worker of four computes ten times longer. Those that wait for it are as slow as it is; the
// time of those that do not is elapsed time x workers / steps of all.
TEST(Simulation, WorkersThatDoNotWaitAreMeasuredByTheStepsOfAll) {
  const ProfileFile file;
  const auto secondsOf = [&](const char* algorithm) {
    SimulationOptions options = smallJob(file, algorithm, 4);
    options.isExact = false;
    options.iterations = 20;
    options.unevenness = {.stragglers = 1, .stragglerFactor = 10};
    const auto result = simulate(options);
    EXPECT_TRUE(result.isOk()) << algorithm << ": " << result.status().toString();
    return result.isOk() ? result->iterationSeconds : 0;
  };
  const double straggler = 10 * 0.005;
  EXPECT_GE(secondsOf("sluice"), straggler);
  EXPECT_LE(secondsOf("asp"), 0.5 * straggler);
}

// Sizes are divided and counted as often, so messages are the same and times nearly so.
TEST(Simulation, ShrunkAndWholeTakeTheSameTimeInTheSameMessages) {
  for (const char* algorithm : {"sluice", "kvstore"}) {
    SimulationOptions options{
        .profile = "resnet18", .algorithm = algorithm, .computeSeconds = 0.16};
    options.warmUp = 1;
    options.iterations = 1;
    options.network.hosts = base::testsAreShort() ? 4 : 8;
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
  options = smallJob(file, "sluice", 4);
  options.profile = "vgg19";
  options.network.hosts = 1'000'000;  // more memory than any machine has
  EXPECT_EQ(simulate(options).status().code(), Code::kUnavailable);
  options = smallJob(file, "sluice", 4);
  options.tracedHosts = {4};
  EXPECT_EQ(simulate(options).status().code(), Code::kInvalidArgument);
  options = smallJob(file, "sluice", 4);
  options.network.topology.hosts[4] = {Rate{1}, Rate{1}};
  EXPECT_EQ(simulate(options).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace sluice::sim
