#include <tools/trace/trace_reader.h>

#include <filesystem>
#include <fstream>
#include <map>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <sluice/observe/trace/testing/small_job.h>
#include <sluice/observe/trace/trace_file.h>

#include <tools/trace/merged_trace.h>
#include <tools/trace/torch_ranks.h>

namespace sluice::trace {
namespace {

class TraceReaderTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              fmt::format("sluice-{}-{}", test->name(), ::getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const RankTrace& trace) {
    const std::string path = traceFileName(folder_.string(), trace.session, trace.rank);
    EXPECT_TRUE(writeTraces(path, std::span(&trace, 1)).isOk());
    return path;
  }

  std::filesystem::path folder_;
};

void expectSame(const RankTrace& a, const RankTrace& b) {
  EXPECT_EQ(a.session, b.session);
  EXPECT_EQ(a.rank, b.rank);
  EXPECT_EQ(a.tensors, b.tensors);
  EXPECT_EQ(a.lost, b.lost);
  EXPECT_EQ(a.clocks, b.clocks);
  EXPECT_EQ(a.wall, b.wall);
  ASSERT_EQ(a.events.size(), b.events.size());
  for (size_t i = 0; i < a.events.size(); ++i) {
    EXPECT_EQ(a.events[i].stage, b.events[i].stage);
    EXPECT_EQ(a.events[i].slice, b.events[i].slice);
    EXPECT_EQ(a.events[i].step, b.events[i].step);
    EXPECT_EQ(a.events[i].peer, b.events[i].peer);
    EXPECT_EQ(a.events[i].at, b.events[i].at);
  }
  ASSERT_EQ(a.waits.size(), b.waits.size());
  for (size_t i = 0; i < a.waits.size(); ++i) {
    EXPECT_EQ(a.waits[i].step, b.waits[i].step);
    EXPECT_EQ(a.waits[i].from, b.waits[i].from);
    EXPECT_EQ(a.waits[i].to, b.waits[i].to);
  }
}

TEST_F(TraceReaderTest, ComesBackAsItWas) {
  auto traces = smallJob();
  traces.push_back(smallDeviceJob()[0]);
  for (RankTrace trace : traces) {
    trace.lost = 3;
    trace.clocks[Rank{7}] = {Duration(-12345), Duration(678)};
    trace.wall = {Duration(1'790'857'026'000'000'001), Duration(2)};
    shift(trace,
          std::chrono::hours(24 * 365) + Duration(1));  // to the nanosecond, also after a year
    const auto back = readTraces(write(trace)).value();
    ASSERT_EQ(back.size(), 1);
    expectSame(back[0], trace);
  }
}

// As sluice wrote it before copies had stages and ranks a wall clock: the track of waits had the
// number 8.
TEST_F(TraceReaderTest, ATraceFromBeforeStagesOfCopiesIsRead) {
  const auto path = folder_ / "old.json";
  std::ofstream(path) << R"({"displayTimeUnit":"ms","otherData":{"sluice_trace":1,
    "session":"model","clock_origin_ns":1000,"tensors":["w"],
    "ranks":[{"rank":0,"lost":0,"clocks":[]}]},"traceEvents":[
    {"ph":"M","pid":0,"tid":7,"name":"thread_name","args":{"name":"applied"}},
    {"ph":"M","pid":0,"tid":8,"name":"thread_name","args":{"name":"wait"}},
    {"ph":"i","s":"t","cat":"slice","name":"applied","pid":0,"tid":7,"ts":3.000,
     "args":{"rank":0,"tensor":"w","layer":0,"slice":0,"step":4,"peer":1}},
    {"ph":"b","cat":"wait","id":"1","name":"wait","pid":0,"tid":8,"ts":2.000,
     "args":{"rank":0,"tensor":"w","layer":0,"step":4}},
    {"ph":"e","cat":"wait","id":"1","name":"wait","pid":0,"tid":8,"ts":5.000}]})";
  const auto traces = readTraces(path.string());
  ASSERT_TRUE(traces.isOk()) << traces.status().toString();
  ASSERT_EQ(traces->size(), 1);
  EXPECT_FALSE(traces->front().wall.has_value());
  ASSERT_EQ(traces->front().events.size(), 1);
  EXPECT_EQ(traces->front().events[0].stage, Stage::kApplied);
  EXPECT_EQ(traces->front().events[0].at, TimePoint(Duration(4000)));
  ASSERT_EQ(traces->front().waits.size(), 1);
  EXPECT_EQ(traces->front().waits[0].to, TimePoint(Duration(6000)));
}

// Returns the times of events by phase and name, in microseconds of the file.
std::multimap<std::string, double> timesIn(const std::string& path) {
  std::ifstream file(path);
  std::multimap<std::string, double> times;
  const auto document = nlohmann::json::parse(file);
  for (const auto& event : document.at("traceEvents")) {
    if (event.at("ph") != "M")
      times.emplace(event.at("ph").get<std::string>() + " " + event.at("name").get<std::string>(),
                    event.at("ts").get<double>());
  }
  return times;
}

TEST_F(TraceReaderTest, AProfileLiesBesideTheTraceOfItsRank) {
  using namespace std::chrono_literals;
  auto traces = smallJob();  // from 10 ms on
  traces[1].wall = {1000s, 1us};
  const std::string profile = (folder_ / "torch.json").string();
  std::ofstream(profile) << R"({"distributedInfo":{"rank":1},"baseTimeNanoseconds":1000000000000,
    "traceEvents":[
    {"ph":"X","name":"mm","cat":"cpu_op","pid":7,"tid":8,"ts":5000,"dur":1},
    {"ph":"s","name":"fwdbwd","cat":"fwdbwd","id":1,"pid":7,"tid":8,"ts":12000},
    {"ph":"f","name":"fwdbwd","cat":"fwdbwd","id":1,"pid":7,"tid":8,"ts":13000},
    {"ph":"i","s":"t","name":"ready","pid":7,"tid":8,"ts":14000}]})";
  const std::vector<TorchProfile> profiles{readTorchProfile(profile).value()};
  const std::string merged = (folder_ / "merged.json").string();
  ASSERT_TRUE(checkRanks(profiles, traces).isOk());
  ASSERT_TRUE(writeMergedTrace(merged, traces, profiles).isOk());
  const auto times = timesIn(merged);
  EXPECT_EQ(times.find("X mm")->second, 0);  // of all events the first
  EXPECT_EQ(times.find("s fwdbwd")->second, 7000);
  EXPECT_EQ(times.find("f fwdbwd")->second, 8000);
  EXPECT_EQ(times.find("b reduce")->second, 15000);

  const auto back = readTraces(merged).value();  // the profile's events are not ours
  ASSERT_EQ(back.size(), 2);
  for (size_t i = 0; i < 2; ++i) expectSame(back[i], traces[i]);
}

TEST_F(TraceReaderTest, AProfileThatIsGoneIsAnError) {
  auto traces = smallJob();
  traces[0].wall = WallClock{};
  const TorchProfile gone{.path = (folder_ / "gone.json").string(), .rank = Rank{0}};
  EXPECT_EQ(
      writeMergedTrace((folder_ / "merged.json").string(), traces, std::span(&gone, 1)).code(),
      Code::kNotFound);
}

TEST_F(TraceReaderTest, ArrowsJoinTheRanks) {
  const std::string merged = (folder_ / "merged.json").string();
  ASSERT_TRUE(writeMergedTrace(merged, smallJob()).isOk());
  const auto times = timesIn(merged);
  for (const char* phase : {"s slice", "f slice"}) EXPECT_EQ(times.count(phase), 2) << phase;
  EXPECT_EQ(times.find("X push")->second, times.find("s slice")->second);
  EXPECT_EQ(times.find("X collect")->second, times.find("f slice")->second);
}

TEST_F(TraceReaderTest, ADirectoryIsReadByRank) {
  const auto traces = smallJob();
  write(traces[1]);
  write(traces[0]);
  ASSERT_TRUE(
      writeMergedTrace((folder_ / "merged.json").string(), traces).isOk());  // not one of them
  const auto back = readDirectory(folder_.string(), "").value();
  ASSERT_EQ(back.size(), 2);
  for (size_t i = 0; i < 2; ++i) expectSame(back[i], traces[i]);
}

TEST_F(TraceReaderTest, SeveralSessionsMustBeToldApart) {
  auto traces = smallJob();
  write(traces[0]);
  traces[1].session = "other";
  write(traces[1]);
  EXPECT_NE(
      readDirectory(folder_.string(), "").status().message().find("(model, other): choose one"),
      std::string::npos);
  EXPECT_EQ(readDirectory(folder_.string(), "other").value().size(), 1);
  EXPECT_EQ(readDirectory(folder_.string(), "third").status().code(), Code::kNotFound);
}

TEST_F(TraceReaderTest, ASessionWithoutStepsNeedNotBeToldApart) {
  const auto traces = smallJob();
  for (const auto& trace : traces) {
    write(trace);
    write({.session = "words", .rank = trace.rank, .tensors = {"words"}});
  }
  const auto back = readDirectory(folder_.string(), "").value();
  ASSERT_EQ(back.size(), 2);
  for (size_t i = 0; i < 2; ++i) expectSame(back[i], traces[i]);
}

TEST_F(TraceReaderTest, WhatIsNoTraceIsRefusedInOneLine) {
  const std::string good = [&] {
    std::ifstream file(write(smallJob()[0]));
    return std::string(std::istreambuf_iterator<char>(file), {});
  }();
  const auto replaced = [&](const std::string& what, const std::string& with) {
    std::string text = good;
    text.replace(text.find(what), what.size(), with);
    return text;
  };
  for (const std::string& text :
       {std::string(), std::string("[]"), std::string("{}"), good.substr(0, good.size() / 2),
        replaced("\"sluice_trace\":1", "\"sluice_trace\":2"),
        replaced("\"layer\":0", "\"layer\":9"),
        replaced("\"name\":\"queued\",\"pid\":0", "\"name\":\"queued\",\"pid\":5"),
        replaced("\"step\":0", "\"step\":\"x\""), replaced("\"ts\":", "\"ts\":1e300,\"x\":"),
        replaced("\"clock_origin_ns\":", "\"clock_origin_ns\":9223372036854775807,\"x\":"),
        std::string(1'000'000, '['), "{\"otherData\":" + std::string(1'000'000, '['),
        replaced("\"args\":{",
                 "\"args\":{\"x\":" + std::string(100, '[') + std::string(100, ']') + ",")}) {
    const std::string path = (folder_ / "x.json").string();
    std::ofstream(path) << text;
    const Status status = readTraces(path).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << text.substr(0, 200);
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace sluice::trace
