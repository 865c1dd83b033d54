#include <tools/trace/torch_profile.h>

#include <filesystem>
#include <fstream>
#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

namespace sluice::trace {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// As PyTorch 2.13 writes it, shortened: a thread of the process, and a line of the profiler's own.
// Events begin 4000 s after the base.
constexpr const char* kProfile = R"JSON( {
    "schemaVersion": 1,
    "deviceProperties": [],

      "trace_id": "613E56A864C24A8182800DB64E9CED1A",
      "distributedInfo": {"backend": "gloo", "rank": 1, "pg_config": [{"ranks": [0, 1]}]},
    "displayTimeUnit": "ms",
    "baseTimeNanoseconds": 1790857026000000000,
    "traceEvents": [
  {"ph": "M", "name": "process_name", "ts": 4000000000.000, "pid": 77, "tid": 0,
    "args": {"name": "python3"}},
  {"ph": "M", "name": "thread_name", "ts": 4000000000.000, "pid": 77, "tid": 78,
    "args": {"name": "thread 78 (python3)"}},
  {"ph": "X", "cat": "user_annotation", "name": "step \"0\"", "pid": 77, "tid": 78,
    "ts": 4000000010.500, "dur": 100.250, "args": {"Ev Idx": 0}},
  {"ph": "s", "id": 3, "pid": 77, "tid": 78, "ts": 4000000020, "cat": "fwdbwd", "name": "fwdbwd"},
  {"ph": "f", "id": 3, "pid": 77, "tid": 78, "ts": 4000000030, "cat": "fwdbwd", "name": "fwdbwd",
    "bp": "e"},
  {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 4000000200.001},
  {"ph": "X", "name": "span", "pid": "Spans", "tid": "Profiler", "ts": 4000000100, "dur": 300},
  {"ph": "X", "name": "kernel", "pid": 0, "tid": 7, "ts": 4000000100, "dur": 1}
  ],"traceName": "a.json" })JSON";
constexpr Duration kBase(1790857026000000000);

class TorchProfileTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    path_ = std::filesystem::temp_directory_path() /
            fmt::format("sluice-{}-{}.json", test->name(), ::getpid());
  }
  void TearDown() override { std::filesystem::remove(path_); }

  std::string write(const std::string& text) {
    std::ofstream(path_, std::ios::binary) << text;
    return path_.string();
  }
  Status statusOf(const std::string& text) { return readTorchProfile(write(text)).status(); }

  std::filesystem::path path_;
};

std::string changed(const std::string& what, const std::string& with) {
  std::string text = kProfile;
  return text.replace(text.find(what), what.size(), with);
}

TEST_F(TorchProfileTest, SaysItsRankItsTimeAndItsThreads) {
  const auto profile = readTorchProfile(write(kProfile)).value();
  EXPECT_EQ(profile.rank, Rank{1});
  EXPECT_EQ(profile.base, kBase);
  EXPECT_EQ(profile.first, kBase + 4000s + 10500ns);
  EXPECT_EQ(profile.last, kBase + 4000s + 400us);
  EXPECT_EQ(profile.events, 6);
  ASSERT_EQ(profile.threads.size(), 4);
  EXPECT_EQ(profile.threads.at("77 78").name, "thread 78 (python3)");
  EXPECT_EQ(profile.threads.at("77 78").track, 0);
  EXPECT_EQ(profile.threads.at(R"("" "")").name, "torch.profiler");
  EXPECT_EQ(profile.threads.at(R"("Spans" "Profiler")").name, "Profiler");
  EXPECT_EQ(profile.threads.at("0 7").name, "thread 7");
}

TEST_F(TorchProfileTest, HandsOutItsEvents) {
  const auto profile = readTorchProfile(write(kProfile)).value();
  std::vector<TorchEvent> events;
  ASSERT_TRUE(
      forEachEvent(profile, [&](const TorchEvent& event) { events.push_back(event); }).isOk());
  ASSERT_EQ(events.size(), 6);
  EXPECT_EQ(events[0].at, kBase + 4000s + 10500ns);
  EXPECT_EQ(events[0].track, 0);
  EXPECT_FALSE(events[0].id.has_value());
  const auto members = nlohmann::json::parse("{" + events[0].members + "}");
  EXPECT_EQ(members, nlohmann::json::parse(R"({"ph":"X","cat":"user_annotation",
      "name":"step \"0\"","dur":100.25,"args":{"Ev Idx":0}})"));
  EXPECT_EQ(events[1].id, events[2].id);
  EXPECT_TRUE(events[1].id.has_value());
  EXPECT_EQ(events[3].track, 1);
  EXPECT_EQ(events[3].at, kBase + 4000s + 200001ns);
  EXPECT_EQ(nlohmann::json::parse("{" + events[3].members + "}").at("s"), "t");
}

TEST_F(TorchProfileTest, TheRankMayBeUnknownAndTheOrderOfMembersAnother) {
  EXPECT_FALSE(readTorchProfile(write(changed("\"rank\": 1,", ""))).value().rank.has_value());
  EXPECT_FALSE(readTorchProfile(write(changed("\"rank\": 1", "\"rank\": -1"))).value().rank);
  std::string text = changed("\"baseTimeNanoseconds\": 1790857026000000000,", "");
  text.replace(text.find("\"traceName\""), 11, "\"baseTimeNanoseconds\": 1000,\"traceName\"");
  const auto profile = readTorchProfile(write(text)).value();
  EXPECT_EQ(profile.first, Duration(1000) + 4000s + 10500ns);
}

TEST_F(TorchProfileTest, WhatIsNoProfileIsRefused) {
  struct Case {
    std::string text, says;
  };
  const std::string deep(200'000, '[');
  std::string wide = "[0";
  for (int i = 0; i < 1'000'000; ++i) wide += ",0";
  for (const Case& each : {
           Case{"", "ends in the middle"},
           Case{"{", "ends in the middle"},
           Case{"not JSON", "is not JSON at byte 2"},
           Case{std::string(100, '\0'), "is not JSON at byte 1"},
           Case{std::string("\xff\xfe\x00", 3), "is not JSON at byte 1"},
           Case{"\x1f\x8b\x08 of gzip", "is compressed"},
           Case{"\x1f", "is not JSON at byte 1"},
           Case{"7", "it is not a JSON object"},
           Case{"[]", "it is not a JSON object"},
           Case{deep, "it is not a JSON object"},
           Case{"{}", "it has no list 'traceEvents'"},
           Case{R"({"traceEvents":{}})", "its 'traceEvents' is not a list"},
           Case{R"({"traceEvents":7})", "its 'traceEvents' is not a list"},
           Case{R"({"traceEvents":[]})", "it has no time 'baseTimeNanoseconds'"},
           Case{R"({"traceEvents":[],"baseTimeNanoseconds":0})", "it has no events"},
           Case{R"({"traceEvents":[7]})", "one of its events is not a JSON object"},
           Case{R"({"traceEvents":[[]]})", "one of its events is not a JSON object"},
           Case{R"({"other":)" + deep, "more than 64 levels"},
           Case{changed("{\"Ev Idx\": 0}", deep), "more than 64 levels"},
           Case{changed("{\"Ev Idx\": 0}", wide + "]"), "more than 1000000 values"},
           Case{changed("\"ph\": \"X\"", "\"ph\": 7"), "its event 2 has no text 'ph'"},
           Case{changed("\"ph\": \"X\",", ""), "its event 2 has no text 'ph'"},
           Case{changed("4000000010.500", "\"x\""), "its event 2 has no number 'ts'"},
           Case{changed("4000000010.500", "1e300"), "'ts' of its event 2 is not possible"},
           Case{changed("4000000010.500", "1e999"), "a number that is not possible"},
           Case{changed("4000000010.500", "-4e15"), "a year that is not possible"},
           Case{changed("4000000010.500", "4e15"), "a year that is not possible"},
           Case{changed("100.250", "-1"), "its event 2 ends before it begins"},
           Case{changed("1790857026000000000", "-1"), "it has no time 'baseTimeNanoseconds'"},
           Case{changed("1790857026000000000", "18446744073709551615"),
                "it has no time 'baseTimeNanoseconds'"},
           Case{changed("\"step \\\"0\\\"\"", "\"step \"0\"\""), "a name with quotes"},
       }) {
    const Status status = statusOf(each.text);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << each.text.substr(0, 200);
    EXPECT_THAT(status.message(), HasSubstr(each.says)) << each.text.substr(0, 200);
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
    EXPECT_LT(status.message().size(), 300);
  }
}

TEST_F(TorchProfileTest, ATruncatedFileIsRefusedWhereverItEnds) {
  const std::string whole = kProfile;
  for (size_t bytes = 0; bytes + 1 < whole.size(); ++bytes)
    EXPECT_THAT(statusOf(whole.substr(0, bytes)).message(), HasSubstr("ends in the middle"));
}

TEST_F(TorchProfileTest, NoByteMakesItCrash) {
  std::mt19937 random(7);
  const std::string bytes = "\"\\{}[],:0-9.eE \xff\n";
  int refused = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string text = kProfile;
    for (int change = 0; change < 1 + round % 3; ++change)
      text[random() % text.size()] = bytes[random() % bytes.size()];
    const auto profile = readTorchProfile(write(text));
    if (!profile.isOk()) {
      ++refused;
      EXPECT_EQ(profile.status().message().find('\n'), std::string::npos);
      continue;
    }
    EXPECT_TRUE(forEachEvent(*profile, [](const TorchEvent& event) {
                  EXPECT_TRUE(nlohmann::json::accept("{" + event.members + "}"));
                }).isOk());
  }
  EXPECT_GT(refused, 200);
  EXPECT_LT(refused, 2000);
}

TEST_F(TorchProfileTest, WhatCannotBeReadIsRefused) {
  EXPECT_EQ(readTorchProfile("/nowhere/x.json").status().code(), Code::kNotFound);
  EXPECT_THAT(readTorchProfile("/").status().message(), HasSubstr("/ is not a file"));
  EXPECT_THAT(readTorchProfile("/dev/zero").status().message(), HasSubstr("is not a file"));
  const std::string path = write("{");
  std::filesystem::resize_file(path, (uintmax_t{1} << 30) + 1);
  EXPECT_THAT(readTorchProfile(path).status().message(), HasSubstr("more than 1 GiB"));
}

TEST_F(TorchProfileTest, AFileThatChangesIsRefused) {
  const auto profile = readTorchProfile(write(kProfile)).value();
  write(changed("\"tid\": 78,\n    \"ts\"", "\"tid\": 79,\n    \"ts\""));
  const Status status = forEachEvent(profile, [](const TorchEvent&) {});
  EXPECT_THAT(status.message(), HasSubstr("has changed"));
}

}  // namespace
}  // namespace sluice::trace
