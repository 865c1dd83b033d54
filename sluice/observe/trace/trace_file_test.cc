#include <sluice/observe/trace/trace_file.h>

#include <filesystem>
#include <fstream>
#include <map>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <sluice/observe/trace/journeys.h>
#include <sluice/observe/trace/testing/small_job.h>

namespace sluice::trace {
namespace {

class TraceFileTest : public testing::Test {
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

TEST_F(TraceFileTest, CopiesOfDevicesHaveTracksInTheOrderOfThePath) {
  const auto traces = smallDeviceJob();
  std::ifstream file(write(traces[0]));
  const auto document = nlohmann::json::parse(file);
  std::map<int, std::string> tracks;  // by number
  std::map<std::string, int> trackOf;
  for (const auto& event : document.at("traceEvents")) {
    const int track = event.at("tid").get<int>();
    if (event.at("name") == "thread_name") {
      tracks[track] = event.at("args").at("name").get<std::string>();
    } else if (event.at("ph") != "M") {
      trackOf[event.at("name").get<std::string>()] = track;
    }
  }
  std::vector<std::string> names;
  for (const auto& [number, name] : tracks) names.push_back(name);
  const std::vector<std::string> inOrder{"ready",    "stage-out", "queued", "push",
                                         "collect",  "reduce",    "update", "publish",
                                         "stage-in", "applied",   "wait"};
  EXPECT_EQ(names, inOrder);
  for (const auto& [name, track] : trackOf) EXPECT_EQ(tracks.at(track), name);
}

TEST_F(TraceFileTest, WithoutDevicesThereAreNoTracksOfCopies) {
  std::ifstream file(write(smallJob()[0]));
  const auto document = nlohmann::json::parse(file);
  for (const auto& event : document.at("traceEvents")) {
    if (event.at("name") != "thread_name") continue;
    EXPECT_EQ(event.at("args").at("name").get<std::string>().find("stage-"), std::string::npos);
  }
}

TEST_F(TraceFileTest, ACopyLastsUntilTheNextStage) {
  const auto traces = smallDeviceJob();
  const Journeys journeys(traces);
  const auto endOf = [&](size_t event) {
    return journeys.endOf(Rank{0}, traces[0].events[event]).value();
  };
  EXPECT_EQ(endOf(0), msAt(10));  // ready, until the copy to the host
  EXPECT_EQ(endOf(1), msAt(11));  // stage-out, until the queue
  EXPECT_EQ(endOf(4), msAt(36));  // stage-in, until it is applied
  const auto& published = traces[1].events[7];
  EXPECT_EQ(journeys.endOf(Rank{1}, published), msAt(33));
}

TEST_F(TraceFileTest, DoesNotFollowALinkAndIsForThisUserAlone) {
  const RankTrace trace{.session = "a"};
  const std::string victim = (folder_ / "victim").string();
  const std::string link = (folder_ / "link.json").string();
  std::ofstream(victim) << "precious";
  std::filesystem::create_symlink(victim, link);
  const Status status = writeTraces(link, std::span(&trace, 1));
  EXPECT_EQ(status.code(), Code::kPermissionDenied);
  EXPECT_NE(status.message().find("it is a link"), std::string::npos);
  EXPECT_EQ(std::filesystem::file_size(victim), 8);
  const std::string path = (folder_ / "own.json").string();
  ASSERT_TRUE(writeTraces(path, std::span(&trace, 1)).isOk());
  EXPECT_EQ(std::filesystem::status(path).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

}  // namespace
}  // namespace sluice::trace
