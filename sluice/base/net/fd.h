// Owns one file descriptor. A forked child (fork.h) has its copy closed before fork() returns
// there. In that child get() returns -1, since the number may belong to something else by then.
//
// It never is 0, 1 or 2, also in a process that has closed these: what the program prints later would
// go to a socket.
#pragma once

#include <unistd.h>

#include <utility>

#include <sluice/base/fork.h>

namespace sluice::net {

// Returns `fd`, or its copy from 3 on if it is 0, 1 or 2, which is closed then. -1 means that the
// process has no descriptor to spare, as errno says, or that `fd` was none.
int awayFromStandardStreams(int fd);

class Fd final {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(awayFromStandardStreams(fd)) { base::closeInForkedChildren(fd_); }
  ~Fd() { reset(); }
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)), mark_(other.mark_) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
      mark_ = other.mark_;
    }
    return *this;
  }

  int get() const { return mark_.isInherited() ? -1 : fd_; }
  bool valid() const { return get() >= 0; }
  int release() {
    const int fd = get();
    fd_ = -1;
    base::keepInForkedChildren(fd);
    return fd;
  }
  void reset() {
    const int fd = release();  // first: once it is closed, the number may be another thread's
    if (fd >= 0) ::close(fd);
  }

 private:
  int fd_ = -1;
  base::ProcessMark mark_;
};

}  // namespace sluice::net
