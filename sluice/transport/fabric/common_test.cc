#include <sluice/transport/fabric/common.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <future>
#include <optional>
#include <thread>

#include <gmock/gmock.h>

#include <sluice/base/net/epoll_loop.h>

namespace sluice::fabric {
namespace {

using testing::HasSubstr;

// A loop that is busy with one task until it is let go.
class BusyLoop final {
 public:
  BusyLoop() {
    std::promise<void> begun;
    thread_->loop().post([this, &begun] {
      begun.set_value();
      letGo_.get_future().wait();
    });
    begun.get_future().wait();
  }
  ~BusyLoop() {
    if (!isLetGo_) letGo();
  }
  void letGo() {
    isLetGo_ = true;
    letGo_.set_value();
  }
  Loop& loop() { return thread_->loop(); }

 private:
  std::promise<void> letGo_;
  bool isLetGo_ = false;
  std::optional<net::LoopThread> thread_{std::in_place, "busy"};
};

TEST(RunAndWait, RunsOnTheLoop) {
  net::LoopThread thread("loop");
  bool wasInLoop = false;
  EXPECT_TRUE(runAndWait(thread.loop(), [&] { wasInLoop = thread.loop().inLoop(); }).isOk());
  EXPECT_TRUE(wasInLoop);
}

TEST(RunAndWait, NamesALoopThatHasEnded) {
  net::EpollLoop loop;
  loop.stop();
  loop.run();
  bool ran = false;
  const Status status = runAndWait(loop, [&] { ran = true; });
  EXPECT_EQ(status.code(), Code::kCancelled);
  EXPECT_THAT(status.message(), HasSubstr("has ended"));
  EXPECT_FALSE(ran);
}

TEST(RunAndWait, NamesALoopThatEndsMeanwhile) {
  net::EpollLoop loop;
  // The loop takes the task or destroys it, by which of the two threads is first: both end the
  // wait.
  auto waiter = std::async(std::launch::async, [&] { return runAndWait(loop, [] {}); });
  loop.post([&] { loop.stop(); });
  loop.run();
  EXPECT_THAT(waiter.get().code(), testing::AnyOf(Code::kOk, Code::kCancelled));
}

TEST(RunAndWait, ATaskThatWasGivenUpNeverRuns) {
  BusyLoop busy;
  bool ran = false;
  const Status status =
      runAndWait(busy.loop(), [&] { ran = true; }, std::chrono::milliseconds(200));
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_THAT(status.message(), HasSubstr("busy with something else"));
  busy.letGo();
  EXPECT_TRUE(runAndWait(busy.loop(), [] {}).isOk());  // after all that was posted before
  EXPECT_FALSE(ran);
}

TEST(RunAndWait, ATaskThatHasBegunIsWaitedFor) {
  net::LoopThread thread("loop");
  bool hasEnded = false;
  const auto slow = [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    hasEnded = true;
  };
  EXPECT_TRUE(runAndWait(thread.loop(), slow, std::chrono::milliseconds(100)).isOk());
  EXPECT_TRUE(hasEnded);
}

// The child waits for a loop that is busy until its standard input has a byte; exits with 0 if the
// task ran.
[[noreturn]] void waitInChild(int in, int out, Duration atMost) {
  BusyLoop busy;
  std::thread release([&] {
    char byte = 0;
    (void)!::read(in, &byte, 1);
    busy.letGo();
  });
  const char ready = 'r';
  (void)!::write(out, &ready, 1);
  const Status status = runAndWait(busy.loop(), [] {}, atMost);
  release.join();
  ::_exit(status.isOk() ? 0 : 1);
}

TEST(RunAndWait, TimeInWhichTheProcessWasStoppedDoesNotCount) {
  constexpr auto kLimit = std::chrono::milliseconds(1000);
  std::array<int, 2> toChild{};
  std::array<int, 2> fromChild{};
  ASSERT_EQ(::pipe(toChild.data()), 0);
  ASSERT_EQ(::pipe(fromChild.data()), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) waitInChild(toChild[0], fromChild[1], kLimit);
  char byte = 0;
  ASSERT_EQ(::read(fromChild[0], &byte, 1), 1);
  ASSERT_EQ(::kill(child, SIGSTOP), 0);
  std::this_thread::sleep_for(kLimit + std::chrono::milliseconds(200));
  ASSERT_EQ(::kill(child, SIGCONT), 0);
  ASSERT_EQ(::write(toChild[1], &byte, 1), 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  for (const int fd : {toChild[0], toChild[1], fromChild[0], fromChild[1]}) ::close(fd);
}

TEST(RunBeforeFreeing, OutlastsABusyLoop) {
  BusyLoop busy;
  bool ran = false;
  auto waiter =
      std::async(std::launch::async, [&] { runBeforeFreeing(busy.loop(), [&] { ran = true; }); });
  EXPECT_EQ(waiter.wait_for(std::chrono::milliseconds(300)), std::future_status::timeout);
  busy.letGo();
  waiter.get();
  EXPECT_TRUE(ran);
}

}  // namespace
}  // namespace sluice::fabric
