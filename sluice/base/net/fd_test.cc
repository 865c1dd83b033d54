#include <sluice/base/net/fd.h>

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>

#include <gtest/gtest.h>

#include <sluice/base/net/epoll_loop.h>

namespace sluice::net {
namespace {

bool isTaken(int fd) {
  return ::fcntl(fd, F_GETFD) >= 0;
}

// Returns the result of `inChild` in a child without the descriptors 0 to 2, as a daemon is.
int resultInDaemon(const std::function<int()>& inChild) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(10);
    for (int fd = 0; fd < 3; ++fd) ::close(fd);
    ::_exit(inChild());
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(Fd, TakesNoPlaceOfAStandardStream) {
  EXPECT_EQ(resultInDaemon([] {
              const EpollLoop loop;
              const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
              if (!loop.status().isOk() || !socket.valid()) return 1;
              for (int fd = 0; fd < 3; ++fd) {
                if (isTaken(fd)) return 2;
              }
              return (::fcntl(socket.get(), F_GETFD) & FD_CLOEXEC) != 0 ? 0 : 3;
            }),
            0);
}

TEST(Fd, WithoutAnotherPlaceItIsInvalidAndErrnoSaysWhy) {
  EXPECT_EQ(resultInDaemon([] {
              const rlimit three{3, 3};
              if (::setrlimit(RLIMIT_NOFILE, &three) != 0) return 1;
              const Fd file(::eventfd(0, EFD_CLOEXEC));
              if (file.valid() || errno == 0) return 2;
              return isTaken(0) ? 3 : 0;
            }),
            0);
}

TEST(Fd, OfAFailedCallKeepsItsErrno) {
  const Fd file(::open("/nowhere/at/all", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(errno, ENOENT);
  EXPECT_FALSE(file.valid());
}

}  // namespace
}  // namespace sluice::net
