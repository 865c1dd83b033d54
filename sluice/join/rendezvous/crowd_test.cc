// Runs the server with 4096 ranks, all of them in this process: from nothing to everybody knowing
// everybody's address. The limit of CPU time, of both sides together, is the time that is promised
// on a quiet machine; debug builds and sanitizers have a smaller crowd.
#include <chrono>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sluice/base/cpu_time.h>
#include <sluice/join/rendezvous/testing/test_world.h>

namespace sluice::rendezvous {
namespace {

using namespace std::chrono_literals;

#ifdef NDEBUG
constexpr uint32_t kCrowd = 4096;
#else
constexpr uint32_t kCrowd = 512;
#endif
constexpr Duration kLimit = 60s;  // of a machine that others use too
constexpr Duration kCpuLimit = 10s;

void meet(uint32_t worldSize) {
  const auto key = secret::JobKey::random();
  const Agreement agreement(base::Config(), worldSize);
  TestServer server({.listen = {}, .key = key, .worldSize = worldSize, .agreement = agreement});
  net::LoopThread thread("ranks");
  const auto addressOf = [](uint32_t rank) {
    return fmt::format("10.0.{}.{}:40000", rank / 256, rank % 256);
  };

  std::vector<std::string> addresses;
  for (uint32_t r = 0; r < worldSize; ++r) addresses.push_back(addressOf(r));

  std::vector<std::unique_ptr<RemoteStore>> stores(worldSize - 1);
  uint32_t right = 0;
  std::promise<void> everybody;
  const auto count = [&](const Result<std::vector<std::string>>& all) {
    ASSERT_TRUE(all.isOk()) << all.status().toString();
    right += *all == addresses ? 1 : 0;
    if (right == worldSize - 1) everybody.set_value();
  };
  const auto begun = std::chrono::steady_clock::now();
  const Duration cpuBefore = base::processCpuTime();
  thread.loop().post([&] {
    for (uint32_t r = 1; r < worldSize; ++r) {
      auto& store = stores[r - 1];
      store =
          std::make_unique<RemoteStore>(thread.loop(), RemoteOptions{.master = {server.address()},
                                                                     .key = key,
                                                                     .rank = Rank{r},
                                                                     .agreement = agreement,
                                                                     .timeout = kLimit});
      store->join([&, r](const Status& status) {
        ASSERT_TRUE(status.isOk()) << status.toString();
        store->gather("address", addresses[r], kLimit, count);
      });
    }
  });
  std::future<Result<std::vector<std::string>>> zero;
  auto got = completion(zero);
  server.loop().post([&, got] { server.store().gather("address", addresses[0], kLimit, got); });

  const bool haveMet = everybody.get_future().wait_for(kLimit) == std::future_status::ready;
  const Duration took = std::chrono::steady_clock::now() - begun;
  const Duration cpu = base::processCpuTime() - cpuBefore;
  const size_t members = server.memberCount();
  onLoop(thread.loop(), [&] { stores.clear(); });  // they use what is here
  ASSERT_TRUE(haveMet) << right << " of " << worldSize - 1 << " ranks have the right answer";
  EXPECT_TRUE(zero.get().isOk());
  fmt::print("{} ranks met in {:.2f} s\n", worldSize, base::seconds(took));
  EXPECT_LT(cpu, kCpuLimit);
  EXPECT_EQ(members, worldSize - 1);
}

TEST(Crowd, Meets) {
  if (raiseFileLimit(2 * kCrowd + 200) < 2 * kCrowd + 200)
    GTEST_SKIP() << "may not open enough files; run: ulimit -Hn 9000";
  meet(kCrowd);
}

}  // namespace
}  // namespace sluice::rendezvous
