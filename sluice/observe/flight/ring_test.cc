#include <sluice/observe/flight/ring.h>

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace sluice::flight {
namespace {

class RingTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              fmt::format("sluice-{}-{}", test->name(), ::getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  static std::unique_ptr<Ring> ring() {
    auto made = Ring::inMemory({.rank = Rank{1}, .worldSize = 3, .job = "job"}, Ring::kLeastBytes);
    EXPECT_TRUE(made.isOk());
    return *std::move(made);
  }

  std::filesystem::path folder_;
};

uint64_t wordIn(const std::string& path, size_t word) {
  std::ifstream file(path, std::ios::binary);
  uint64_t value = 0;
  file.seekg(static_cast<std::streamoff>(word * sizeof value));
  file.read(reinterpret_cast<char*>(&value), sizeof value);
  return value;
}

TEST_F(RingTest, ANameHasOneNumber) {
  const auto made = ring();
  EXPECT_EQ(made->nameOf("conv1.weight"), 1);
  EXPECT_EQ(made->nameOf("fc.bias"), 2);
  EXPECT_EQ(made->nameOf("conv1.weight"), 1);
  // Names that have no room have no number, and those before keep theirs.
  for (int i = 0; i < 2000; ++i) (void)made->nameOf(fmt::format("{:064}", i));
  EXPECT_EQ(made->nameOf(fmt::format("{:064}", 2000)), 0);
  EXPECT_EQ(made->nameOf("fc.bias"), 2);
}

TEST_F(RingTest, TheBytesOfVersion1AreFixed) {
  const auto made = ring();
  made->add({.kind = EventKind::kSent,
             .detail = 2,
             .session = 3,
             .at = TimePoint(Duration(4)),
             .step = 5,
             .name = 6,
             .slice = 7,
             .peer = 8,
             .bytes = 9});
  const auto words = made->words();
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(words.data()), 8), "SLUICEFR");
  EXPECT_EQ(words[kVersionAndHeaderWords], wordOf(1, 34));
  EXPECT_EQ(words[kRankAndWorld], wordOf(1, 3));
  EXPECT_EQ(words[kRecordsNext], 1);
  const auto record = words.subspan(words[kRecordsAt], kRecordWords);
  EXPECT_EQ(record[0], uint64_t{0x0003'0203'0000'0001});
  EXPECT_EQ(record[1], 4);
  EXPECT_EQ(record[2], 5);
  EXPECT_EQ(record[3], wordOf(6, 7));
  EXPECT_EQ(record[4], wordOf(8, 9));
}

TEST_F(RingTest, SavesAFileForThisUserAlone) {
  const auto made = ring();
  ASSERT_EQ(writeWords(path("saved").c_str(), made->words()), 0);
  EXPECT_EQ(std::filesystem::file_size(path("saved")), made->words().size_bytes());
  EXPECT_EQ(wordIn(path("saved"), 0), kMagic);
  struct stat found{};
  ASSERT_EQ(::stat(path("saved").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600);
  // Only what was used takes room on the disk.
  EXPECT_LT(found.st_blocks * 512, Ring::kLeastBytes);
}

TEST_F(RingTest, FollowsNoLinkAndFillsNoSharedFile) {
  const auto made = ring();
  std::ofstream(path("victim")) << "precious";
  std::filesystem::create_symlink(path("victim"), path("link"));
  std::filesystem::create_hard_link(path("victim"), path("second"));
  EXPECT_NE(writeWords(path("link").c_str(), made->words()), 0);
  EXPECT_NE(writeWords(path("second").c_str(), made->words()), 0);
  // A mapped file takes the place of what was there.
  EXPECT_TRUE(Ring::inFile({}, Ring::kLeastBytes, path("link")).isOk());
  EXPECT_EQ(std::filesystem::file_size(path("victim")), 8);
}

TEST_F(RingTest, AMappedFileOutlivesAKill) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto made = Ring::inFile({}, Ring::kLeastBytes, path("mapped"));
    if (made.isOk()) (*made)->add({.kind = EventKind::kStepBegins, .step = 12});
    (void)::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(wordIn(path("mapped"), kRecordsNext), 1);
  EXPECT_EQ(wordIn(path("mapped"), wordIn(path("mapped"), kRecordsAt) + 2), 12);
}

TEST_F(RingTest, SeveralThreadsAddAtOnceWhileItIsSaved) {
  const auto made = ring();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (uint64_t step = 0; step < 1000; ++step) {
        made->add({.kind = EventKind::kStepBegins, .step = step});
        if (step % 100 == 0) (void)made->addText("a reason");
      }
    });
  }
  for (int i = 0; i < 3; ++i) EXPECT_EQ(writeWords(path("saved").c_str(), made->words()), 0);
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(made->words()[kRecordsNext], 4000);
}

}  // namespace
}  // namespace sluice::flight
