#include <tools/lab/fork_inside.h>

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include <sluice/base/net/fd.h>

namespace sluice::lab {

// A process enters a user namespace only if it has no threads, and a PID namespace only with its
// children. So a process in between enters both and starts the child, which CLONE_PARENT makes a
// child of the caller.
pid_t forkInside(const Realm& realm, int member) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return -1;
  const net::Fd answer(ends[0]);
  net::Fd report(ends[1]);
  const pid_t between = ::_Fork();  // unlike fork(), it leaves descriptors open (base/fork.h)
  if (between == 0) {
    const bool entered = realm.enter() && (member < 0 ? ::unshare(CLONE_NEWPID)
                                                      : ::setns(member, CLONE_NEWPID)) == 0;
    const long child = entered ? ::syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0) : -1;
    if (child == 0) return 0;
    const auto said = static_cast<pid_t>(child < 0 ? -errno : child);
    ::_exit(::write(report.get(), &said, sizeof said) == sizeof said ? 0 : 1);
  }
  if (between < 0) return -1;
  report.reset();
  while (::waitpid(between, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_t child = -ECHILD;
  if (::read(answer.get(), &child, sizeof child) != sizeof child) child = -ECHILD;
  if (child > 0) return child;
  errno = -child;
  return -1;
}

}  // namespace sluice::lab
