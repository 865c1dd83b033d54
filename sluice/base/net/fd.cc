#include <sluice/base/net/fd.h>

#include <fcntl.h>

#include <cerrno>

namespace sluice::net {

int awayFromStandardStreams(int fd) {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;
  ::close(fd);
  errno = error;
  return copy;
}

}  // namespace sluice::net
