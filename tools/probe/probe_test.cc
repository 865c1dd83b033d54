#include <tools/probe/probe.h>

#include <gtest/gtest.h>

#include <thread>

#include <sluice/base/net/fd.h>
#include <sluice/base/options.h>
#include <sluice/secret/door/listen.h>
#include <sluice/secret/job_key.h>
#include <tools/probe/own_sockets.h>

namespace sluice::probe {
namespace {

using namespace std::chrono_literals;

constexpr uint32_t kRanks = 3;

uint16_t freePort() {
  const auto listener = door::listenOn(Address::loopback(0));
  EXPECT_TRUE(listener.isOk());
  return Address::localOf(listener->get()).port();
}

// Runs `body` for each rank on a thread of its own.
template <typename Body>
void asRanks(const std::string& encrypt, const Body& body) {
  const uint16_t port = freePort();
  const std::string key = secret::JobKey::random().toHex();
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      base::Config config;
      ASSERT_TRUE(config.set(option::kJobKey, key).isOk());
      ASSERT_TRUE(config.set(option::kEncrypt, encrypt).isOk());
      const base::Config::Values environment{{"RANK", std::to_string(rank)},
                                             {"WORLD_SIZE", std::to_string(kRanks)},
                                             {"LOCAL_RANK", std::to_string(rank)},
                                             {"MASTER_ADDR", "127.0.0.1"},
                                             {"MASTER_PORT", std::to_string(port)}};
      auto meeting =
          ProbeMeeting::prepare(config, environment, {.command = "test", .patience = 20s});
      ASSERT_TRUE(meeting.isOk()) << meeting.status().toString();
      const Status opened = (*meeting)->open();
      ASSERT_TRUE(opened.isOk()) << opened.toString();
      body(**meeting);
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(Probe, MeasuresEveryPairAndEveryRankKnowsAll) {
  asRanks("on", [](ProbeMeeting& meeting) {
    const auto notes = meeting.join("hello from " + std::to_string(index(meeting.rank())));
    ASSERT_TRUE(notes.isOk()) << notes.status().toString();
    EXPECT_EQ(notes->at(2), "hello from 2");
    const auto facts = probeNetwork(
        meeting, {.pairs = 900ms, .singles = 50ms, .allAtOnce = 100ms, .crowd = 100ms});
    ASSERT_TRUE(facts.isOk()) << facts.status().toString();
    ASSERT_EQ(facts->ranks.size(), kRanks);
    for (uint32_t from = 0; from < kRanks; ++from) {
      const RankFacts& own = facts->ranks[from];
      EXPECT_TRUE(own.isEncrypted);
      EXPECT_GT(own.compute.cpuSeconds, 0);
      EXPECT_GT(own.cpuPerGbPlain, 0);
      EXPECT_GT(own.cpuPerGbEncrypted, 0);
      EXPECT_EQ(own.codecCpuPerGb.size(), 3U);
      for (uint32_t to = 0; to < kRanks; ++to) {
        if (to == from) continue;
        const PairFacts* pair = facts->pair(from, to);
        ASSERT_NE(pair, nullptr);
        EXPECT_EQ(pair->problem, "");
        EXPECT_TRUE(pair->largePasses);
        EXPECT_GT(pair->roundTrip, 0);
        EXPECT_GT(pair->bitsPerSecond, 1e6);
        EXPECT_GT(pair->segments, 0U);
        EXPECT_FALSE(pair->control.empty());
      }
    }
  });
}

TEST(Probe, ARankThatLeavesIsAnErrorAndNoHang) {
  asRanks("off", [](ProbeMeeting& meeting) {
    ASSERT_TRUE(meeting.join("").isOk());
    if (meeting.rank() == Rank{2}) return;
    const auto facts = probeNetwork(
        meeting, {.pairs = 300ms, .singles = 50ms, .allAtOnce = 100ms, .crowd = 100ms});
    EXPECT_FALSE(facts.isOk());
  });
}

TEST(ProbeMeeting, OneProcessWithoutALauncherIsAWorldOfOne) {
  auto meeting = ProbeMeeting::prepare(base::Config(), {}, {.command = "test"});
  ASSERT_TRUE(meeting.isOk());
  ASSERT_TRUE((*meeting)->open().isOk());
  EXPECT_EQ((*meeting)->join("alone")->at(0), "alone");
  const auto facts = probeNetwork(**meeting);
  ASSERT_TRUE(facts.isOk()) << facts.status().toString();
  EXPECT_EQ(facts->ranks.size(), 1U);
}

}  // namespace
}  // namespace sluice::probe
