#include <sluice/observe/flight/flight_recorder.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sluice/base/check.h>
#include <sluice/base/options.h>

namespace sluice::flight {
namespace {

const About kAbout{.rank = Rank{2}, .worldSize = 4, .job = "my/job"};

class FlightRecorderTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              fmt::format("sluice-{}-{}", test->name(), ::getpid());
    std::filesystem::create_directories(folder_);
    ::setenv("TMPDIR", folder_.c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("TMPDIR");
    std::filesystem::remove_all(folder_);
  }

  std::unique_ptr<FlightRecorder> begin(const std::string& folder = "",
                                        const std::string& signal = "none") const {
    base::Config config;
    EXPECT_TRUE(config.set(option::kFlightDir, folder).isOk());
    EXPECT_TRUE(config.set(option::kFlightSignal, signal).isOk());
    auto made = FlightRecorder::begin(config, kAbout);
    EXPECT_TRUE(made.isOk());
    return *std::move(made);
  }

  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_)) {
      if (entry.is_regular_file()) names.push_back(entry.path().filename());
    }
    return names;
  }

  // Runs in a child, which is to die of SIGABRT.
  template <typename Body>
  static void aborts(const Body& body) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      body();
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) << status;
  }

  std::filesystem::path folder_;
};

TEST_F(FlightRecorderTest, AGoodEndLeavesNothing) {
  begin();
  begin((folder_ / "flights").string());
  EXPECT_TRUE(files().empty());
}

TEST_F(FlightRecorderTest, AFailureLeavesAFileWithTheJobAndTheRankInItsName) {
  auto recorder = begin();
  recorder->failed("rank 1 is lost");
  ASSERT_EQ(files().size(), 1);
  EXPECT_TRUE(files().front().starts_with(fmt::format("sluice-flight-my_job-2-{}", ::getpid())));
  EXPECT_EQ(recorder->path(), (folder_ / files().front()).string());
  recorder.reset();
  EXPECT_EQ(files().size(), 1);
  recorder = begin((folder_ / "flights").string());
  recorder->failedSoon("rank 1 is lost");
  recorder.reset();
  EXPECT_EQ(files().size(), 2);
}

TEST_F(FlightRecorderTest, AFailureOnTheLoopIsSavedByAnotherThread) {
  auto recorder = begin();
  for (int i = 0; i < 3; ++i) recorder->failedSoon("rank 1 is lost");
  recorder.reset();
  EXPECT_EQ(files().size(), 1);
}

TEST_F(FlightRecorderTest, AnAbortLeavesAFile) {
  aborts([this] {
    const auto recorder = begin();
    std::abort();
  });
  EXPECT_EQ(files().size(), 1);
  aborts([this] {
    const auto recorder = begin();
    SLUICE_CHECK(files().empty(), "a failed check");
  });
  EXPECT_EQ(files().size(), 2);
}

TEST_F(FlightRecorderTest, AHandlerThatWasThereBeforeRunsToo) {
  aborts([this] {
    static const std::string other = (folder_ / "other").string();
    struct sigaction before{};
    before.sa_handler = [](int) {
      ::close(::open(other.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    };
    ::sigaction(SIGABRT, &before, nullptr);
    const auto recorder = begin();
    std::abort();
  });
  EXPECT_EQ(files().size(), 2);
}

TEST_F(FlightRecorderTest, AnAbortAfterTheJobLeavesNothing) {
  aborts([this] {
    begin();
    std::abort();
  });
  EXPECT_TRUE(files().empty());
}

TEST_F(FlightRecorderTest, AForkedChildSavesNothingInItsParentsName) {
  const auto recorder = begin();
  aborts([] { std::abort(); });
  EXPECT_TRUE(files().empty());
}

TEST_F(FlightRecorderTest, TakesASignalOnlyIfOneIsNamed) {
  struct sigaction found{};
  {
    const auto recorder = begin();
    ASSERT_EQ(::sigaction(SIGUSR1, nullptr, &found), 0);
    EXPECT_EQ(found.sa_handler, SIG_DFL);
  }
  const auto recorder = begin("", "SIGUSR2");
  (void)::raise(SIGUSR2);
  EXPECT_EQ(files().size(), 1);
  ASSERT_EQ(::sigaction(SIGUSR1, nullptr, &found), 0);
  EXPECT_EQ(found.sa_handler, SIG_DFL);
}

TEST_F(FlightRecorderTest, AFolderThatCannotBeMadeDoesNotEndTheJob) {
  const auto recorder = begin("/dev/null/flights");
  recorder->failed("rank 1 is lost");
  EXPECT_EQ(files().size(), 1);  // in the temporary folder
}

TEST_F(FlightRecorderTest, ZeroBytesAreNoRecorder) {
  base::Config config;
  ASSERT_TRUE(config.set(option::kFlightBytes, "0").isOk());
  const auto recorder = FlightRecorder::begin(config, kAbout);
  ASSERT_TRUE(recorder.isOk());
  EXPECT_EQ(*recorder, nullptr);
}

TEST_F(FlightRecorderTest, TheNumberOfAMeetingIsNoPartOfItsName) {
  const auto recorder = begin();
  const auto first = recorder->meetingBegins("ranks/model-0/99");
  const auto second = recorder->meetingBegins("ranks/model-0/100");
  EXPECT_EQ(first.name, second.name);
  EXPECT_EQ(second.number, 100);
  EXPECT_NE(recorder->meetingBegins("leave").name, first.name);
  recorder->meetingEnds(first, base::ok());
  recorder->meetingEnds(second, {Code::kCancelled, "Ctrl-C"});
  EXPECT_TRUE(files().empty());
  recorder->meetingEnds(second, {Code::kTimeout, "rank 1 did not come"});
  EXPECT_EQ(files().size(), 1);
}

}  // namespace
}  // namespace sluice::flight
