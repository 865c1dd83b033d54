// A process as a file descriptor: readable when it has ended, and never another process of the same
// number.
#pragma once

#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <sluice/base/net/fd.h>

namespace sluice::lab {

// Makes the system call by number, since glibc 2.36 declares pidfd_open without C linkage.
inline net::Fd openProcess(pid_t pid) {
  return net::Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

inline bool signalProcess(const net::Fd& process, int signal) {
  return ::syscall(SYS_pidfd_send_signal, process.get(), signal, nullptr, 0) == 0;
}

}  // namespace sluice::lab
