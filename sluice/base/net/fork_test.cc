#include <sluice/base/fork.h>

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>

#include <gtest/gtest.h>

#include <sluice/base/log.h>
#include <sluice/base/net/epoll_loop.h>
#include <sluice/base/net/fd.h>

namespace sluice::net {
namespace {

bool isOpen(int fd) {
  return ::fcntl(fd, F_GETFD) >= 0;
}

// Returns the result of `inChild` in a forked child. The alarm ends a child that hangs; the result
// is then -SIGALRM.
int resultInChild(const std::function<int()>& inChild) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(10);
    ::_exit(inChild());
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(Fork, AChildHasNoDescriptorOfAnFd) {
  const Fd owned(::eventfd(0, EFD_CLOEXEC));
  Fd given(::eventfd(0, EFD_CLOEXEC));
  const Fd moved(std::move(given));
  Fd assigned(::eventfd(0, EFD_CLOEXEC));
  assigned = Fd(::eventfd(0, EFD_CLOEXEC));
  Fd released(::eventfd(0, EFD_CLOEXEC));
  const int free = released.release();
  const int number = owned.get();
  EXPECT_EQ(resultInChild([&] {
              return (isOpen(number) ? 1 : 0) + (isOpen(free) ? 0 : 2) + (owned.valid() ? 4 : 0) +
                     (moved.valid() ? 8 : 0) + (assigned.valid() ? 16 : 0);
            }),
            0);
  EXPECT_TRUE(isOpen(number) && owned.valid() && moved.valid() && assigned.valid());
  ::close(free);
}

TEST(Fork, AnInheritedFdDoesNotCloseTheNextOwnerOfItsNumber) {
  Fd inherited(::eventfd(0, EFD_CLOEXEC));
  const int number = inherited.get();
  EXPECT_EQ(resultInChild([&] {
              if (::dup2(STDERR_FILENO, number) != number) return 1;
              const Fd next(number);
              inherited.reset();
              return isOpen(number) && next.get() == number ? 0 : 2;
            }),
            0);
  EXPECT_TRUE(isOpen(number));
}

TEST(Fork, ALoopOfTheParentTakesNothingInAChildAndEndsThere) {
  auto thread = std::make_unique<LoopThread>("test");
  EXPECT_FALSE(thread->loop().isInherited());
  EXPECT_EQ(resultInChild([&] {
              if (!thread->loop().isInherited()) return 1;
              bool isDestroyed = false;
              std::shared_ptr<void> seen(nullptr, [&](void*) { isDestroyed = true; });
              thread->loop().post([seen = std::move(seen)] {});
              thread->loop().unwatch(0);
              thread.reset();  // must not wait for a thread that is not here
              return isDestroyed ? 0 : 2;
            }),
            0);
}

TEST(Fork, AChildCanLogWhateverOtherThreadsWereDoing) {
  ASSERT_TRUE(base::setLogLevels("info").isOk());
  testing::internal::CaptureStderr();
  std::atomic<bool> isOver = false;
  std::thread chatter([&] {
    while (!isOver) {
      log("chatter").info("a line that holds the log's lock");
      base::setLogPrefix("");
    }
  });
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(resultInChild([] {
                log("child").info("hello");
                return 0;
              }),
              0);
  }
  isOver = true;
  chatter.join();
  (void)testing::internal::GetCapturedStderr();
}

}  // namespace
}  // namespace sluice::net
