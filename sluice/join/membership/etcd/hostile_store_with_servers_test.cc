// A server in etcd's place may answer anything. A member must stay small, and its loop quick.
#include <sys/stat.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <future>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sluice/base/cpu_time.h>
#include <sluice/base/testing/short_tests.h>
#include <sluice/join/membership/etcd/etcd_membership.h>
#include <sluice/join/membership/etcd/testing/hostile_server.h>
#include <sluice/join/membership/testing/member_seat.h>

namespace sluice::membership {
namespace {

using namespace std::chrono_literals;

constexpr size_t kMostGrowthBytes = size_t{64} << 20;
// Tests are built without optimisation, and so is the parser that they bring along: it takes some eight
// times as long here. tests/programs/hostile_store_test.py judges the program itself.
constexpr Duration kLongestTask = 8 * 50ms;
constexpr size_t kMegabyte = 1'000'000;

size_t peakBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    unsigned long kilobytes = 0;
    if (std::sscanf(line.c_str(), "VmHWM: %lu kB", &kilobytes) == 1) return kilobytes * 1024;
  }
  return 0;
}

// From now on the peak is that of the memory in use.
void forgetPeak() {
  std::ofstream("/proc/self/clear_refs") << 5;
}

std::string repeated(std::string_view text, size_t times) {
  std::string all;
  for (size_t i = 0; i < times; ++i) all += text;
  return all;
}

struct HostileCase {
  std::string name;
  HostileAnswer answer;
};

std::vector<HostileCase> hostileCases() {
  const std::string kilobyte(1024, 'A');
  const std::string entry =
      R"({"key":"YQ==","value":"YWFhYWFhYWFh","mod_revision":"1","create_revision":"1"})";
  const std::string event = R"({"kv":)" + entry + "}";
  return {
      {"BracketsWithoutAnEnd", {.piece = std::string(65536, '['), .times = 60 * kMegabyte / 65536}},
      {"ObjectsInEachOther", {.piece = repeated(R"({"a":)", 10'000), .times = 1000}},
      {"ALineWithoutAnEnd", {.first = R"({"result":{"a":")", .piece = kilobyte, .times = 60'000}},
      {"LinesWithoutAnEnd",
       {.piece = repeated("{\"result\":{\"created\":true}}\n", 2000), .times = 1000}},
      {"EventsWithoutAnEnd",
       {.piece = R"({"result":{"events":[)" + event + "," + event + "]}}\n", .times = 500'000}},
      {"ManyEventsInALine",
       {.first = R"({"result":{"events":[)",
        .piece = event + ",",
        .times = 30'000,
        .last = event + "]}}\n"}},
      {"ALongText",
       {.first = R"({"header":{},"kvs":[{"key":"YQ==","value":")",
        .piece = kilobyte,
        .times = 1000,
        .last = "\"}]}"}},
      {"ALongValue",
       {.first = R"({"kvs":[{"key":"YQ==","value":")",
        .piece = kilobyte,
        .times = 500,
        .last = R"("},{"key":"YQ==","value":")" + repeated(kilobyte, 500) + "\"}]}"}},
      {"ManyEntries",
       {.first = R"({"kvs":[)", .piece = entry + ",", .times = 9000, .last = entry + "]}"}},
      {"AsManyValuesAsThereMayBe",
       {.first = R"({"kvs":[)", .piece = entry + ",", .times = 1900, .last = entry + "]}"}},
      {"EntriesOfStrangers",
       {.first = R"({"kvs":[)", .piece = entry + ",", .times = 255, .last = entry + "]}"}},
      {"WrongTypes",
       {.first = R"({"header":[],"succeeded":{},"kvs":{},"responses":7,"ID":[],"result":[)",
        .piece = "0,",
        .times = 1'000'000,
        .last = "0]}"}},
      {"OnlySpaces", {.piece = std::string(65536, ' '), .times = 60}},
      {"OnlyLineBreaks", {.piece = std::string(65536, '\n'), .times = 1000}},
  };
}

class HostileStoreTest : public testing::TestWithParam<HostileCase> {};

// Plays a member whose store is the server, for a second.
TEST_P(HostileStoreTest, AMemberStaysSmallAndItsLoopQuick) {
  HostileServer server(GetParam().answer);
  net::LoopThread thread("hostile");
  const auto onLoop = [&](const Task& task) {
    std::promise<void> ended;
    thread.loop().post([&] {
      task();
      ended.set_value();
    });
    ended.get_future().wait();
  };
  forgetPeak();
  const size_t before = peakBytes();
  std::unique_ptr<Membership> membership;
  Duration longest{};
  onLoop([&] {
    auto made = makeEtcdMembership(
        thread.loop(), {.address = fmt::format("etcd://127.0.0.1:{}", server.port())},
        {.job = "job", .key = secret::JobKey::random(), .pollEvery = 100ms});
    ASSERT_TRUE(made.isOk()) << made.status().toString();
    membership = *std::move(made);
    membership->watch([](const StoredEpoch&) { ADD_FAILURE() << "an epoch nobody has sealed"; });
    membership->announce(contract::memberNamed("here"), 1s, [](const Status&) {});
    membership->announced(1s, [](const Result<std::vector<Member>>& got) {
      EXPECT_TRUE(!got.isOk() || got->empty());
    });
    membership->history(200, 1s, [](const Result<std::vector<EpochRecord>>& got) {
      EXPECT_TRUE(!got.isOk() || got->empty());
    });
  });
  // A task that makes itself anew runs between all others.
  bool isOver = false;
  Duration last{};
  std::function<void()> look = [&] {
    const Duration now = base::threadCpuTime();
    if (last != Duration::zero()) longest = std::max(longest, now - last);
    last = now;
    if (!isOver) (void)thread.loop().after(Duration::zero(), look);
  };
  onLoop(look);
  std::this_thread::sleep_for(1s);
  onLoop([&] { isOver = true; });
  onLoop([&] { membership.reset(); });
  std::this_thread::sleep_for(1ms);
  onLoop([] {});
  EXPECT_GE(server.answers(), 2);
  const size_t growth = peakBytes() - std::min(before, peakBytes());
  std::printf("%s: %.1f MB more, the longest task %.1f ms\n", GetParam().name.c_str(),
              static_cast<double>(growth) / 1e6, 1e3 * base::seconds(longest));
  if (base::testsAreShort()) return;  // a sanitizer takes time and memory of its own
  EXPECT_LT(growth, kMostGrowthBytes);
  EXPECT_LT(longest, kLongestTask);
}

INSTANTIATE_TEST_SUITE_P(Answers, HostileStoreTest, testing::ValuesIn(hostileCases()),
                         [](const auto& one) { return one.param.name; });

// ---- Other limits ----

TEST(EtcdSettings, AUserHasAPasswordFileThatNobodyElseMayOpen) {
  net::LoopThread thread("settings");
  const std::string path = testing::TempDir() + "etcd.password";
  std::ofstream(path) << "hunter2\n";
  const auto why = [&](const EtcdSettings& settings) {
    std::promise<std::string> said;
    thread.loop().post([&] {  // a membership is made and goes on its loop
      const auto made = makeEtcdMembership(thread.loop(), settings, {.job = "job"});
      said.set_value(made.isOk() ? "ok" : std::string(made.status().message()));
    });
    return said.get_future().get();
  };
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  EXPECT_THAT(why({.address = "etcd://127.0.0.1", .user = "a", .passwordFile = path}),
              testing::HasSubstr("holds a password but others may open it (mode 0640)"));
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  EXPECT_EQ(why({.address = "etcd://127.0.0.1", .user = "a", .passwordFile = path}), "ok");
  EXPECT_THAT(why({.address = "etcd://127.0.0.1", .user = "a"}),
              testing::HasSubstr("members-user is given without members-password-file"));
  EXPECT_THAT(why({.address = "etcd://127.0.0.1", .passwordFile = path}),
              testing::HasSubstr("members-password-file is given without members-user"));
  EXPECT_THAT(why({.address = "etcd://127.0.0.1", .user = "a", .passwordFile = "/dev"}),
              testing::HasSubstr("is not a regular file"));
  std::ofstream(path) << "\n";
  EXPECT_THAT(why({.address = "etcd://127.0.0.1", .user = "a", .passwordFile = path}),
              testing::HasSubstr("holds no password"));
}

}  // namespace
}  // namespace sluice::membership
