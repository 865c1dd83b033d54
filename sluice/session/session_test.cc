// Whole jobs over tcp on loopback addresses, ranks as threads.
#include <sluice/session/session.h>

#include <functional>
#include <thread>

#include <gtest/gtest.h>

#include <sluice/base/options.h>
#include <sluice/fabric/tcp/listener.h>

namespace sluice::session {
namespace {

// A port that was free a moment ago.
std::string freePort() {
  return std::to_string(fabric::TcpListener::open(Address::loopback(0)).value().address().port());
}

void onRanks(
    uint32_t world, const std::function<void(uint32_t, Result<std::unique_ptr<Job>>)>& task,
    const std::function<void(uint32_t, Config&)>& configure = [](auto, auto&) {}) {
  const std::string port = freePort();
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < world; ++r) {
    threads.emplace_back([&, r] {
      Config config;
      configure(r, config);
      task(r, Job::join(config, {{"RANK", std::to_string(r)},
                                 {"WORLD_SIZE", std::to_string(world)},
                                 {"MASTER_ADDR", "127.0.0.1"},
                                 {"MASTER_PORT", port}}));
    });
  }
  for (auto& thread : threads) thread.join();
}

// A model of one tensor in one rank's memory.
struct OneTensor {
  explicit OneTensor(uint64_t elements) : gradient(elements), parameter(elements, 1) {}
  Request request(const std::string& update, const std::string& name = "model") {
    return {.model = {{{"w", gradient.size(), DType::kF32}}},
            .memory = {{std::as_bytes(std::span(gradient)), std::as_writable_bytes(std::span(parameter))}},
            .update = update,
            .name = name};
  }
  std::vector<float> gradient;
  std::vector<float> parameter;
};

TEST(Session, AJobOfOneNeedsNoLauncher) {
  auto job = Job::join(Config(), {}).value();
  OneTensor memory(3);
  auto session = Session::open(*job, memory.request("sgd:lr=1")).value();
  memory.gradient = {1, 2, 3};
  session->gradientReady(TensorId{0});
  EXPECT_TRUE(session->wait(TensorId{0}).isOk());
  EXPECT_EQ(memory.parameter, (std::vector<float>{0, -1, -2}));
  EXPECT_TRUE(session->leave().isOk());
}

TEST(Session, TrainsTwoModelsOfOneJobOverTcp) {
  onRanks(3, [](uint32_t r, Result<std::unique_ptr<Job>> job) {
    ASSERT_TRUE(job.isOk()) << job.status().toString();
    OneTensor large(200'001);
    OneTensor small(5);
    auto first = Session::open(**job, large.request("sgd:lr=1", "large"));
    ASSERT_TRUE(first.isOk()) << first.status().toString();
    auto second = Session::open(**job, small.request("mean-gradient", "small"));
    ASSERT_TRUE(second.isOk()) << second.status().toString();
    for (int step = 0; step < 3; ++step) {
      EXPECT_TRUE((*first)->wait(TensorId{0}).isOk());
      EXPECT_TRUE((*second)->wait(TensorId{0}).isOk());
      std::ranges::fill(large.gradient, static_cast<float>(r));
      std::ranges::fill(small.gradient, static_cast<float>(r * step));
      (*first)->gradientReady(TensorId{0});
      (*second)->gradientReady(TensorId{0});
    }
    EXPECT_TRUE((*first)->leave().isOk());
    EXPECT_TRUE((*second)->leave().isOk());
    EXPECT_EQ(large.parameter, std::vector<float>(200'001, -2));
    EXPECT_EQ(small.parameter, std::vector<float>(5, 2));
  });
}

TEST(Session, TrainsOverUcxOnlyWhereTheNetworkIsTrusted) {
  for (const bool isTrusted : {false, true}) {
    onRanks(
        2,
        [&](uint32_t r, Result<std::unique_ptr<Job>> job) {
          ASSERT_TRUE(job.isOk()) << job.status().toString();
          OneTensor memory(100'001);
          auto session = Session::open(**job, memory.request("sgd:lr=1"));
          ASSERT_EQ(session.isOk(), isTrusted) << session.status().toString();
          if (!isTrusted) return;
          for (int step = 0; step < 3; ++step) {
            EXPECT_TRUE((*session)->wait(TensorId{0}).isOk());
            std::ranges::fill(memory.gradient, static_cast<float>(2 * r));
            (*session)->gradientReady(TensorId{0});
          }
          EXPECT_TRUE((*session)->leave().isOk());
          EXPECT_EQ(memory.parameter, std::vector<float>(100'001, -2));
        },
        [&](uint32_t, Config& config) {
          EXPECT_TRUE(config.set(option::kFabric, "ucx").isOk());
          EXPECT_TRUE(config.set(option::kIface, "lo").isOk());
          EXPECT_TRUE(config.set(option::kTrustedNetwork, isTrusted ? "on" : "off").isOk());
        });
  }
}

TEST(Session, RanksThatTrainDifferentThingsAreToldTheFirstDifference) {
  onRanks(3, [](uint32_t r, Result<std::unique_ptr<Job>> job) {
    ASSERT_TRUE(job.isOk()) << job.status().toString();
    OneTensor memory(r == 2 ? 7 : 6);
    const Status status = Session::open(**job, memory.request("mean-gradient")).status();
    EXPECT_EQ(status.message(),
              "the ranks do not train the same thing: rank 2: tensor 0 'w' has 7 elements here, 6 on rank 0");
  });
}

}  // namespace
}  // namespace sluice::session
