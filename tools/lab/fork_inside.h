// Starts a process in a lab's realm and in a PID namespace. Only the launcher uses this file.
#pragma once

#include <sys/types.h>

#include <tools/lab/realm.h>

namespace sluice::lab {

// Forks a child of this process that is in the realm and in a PID namespace: that of the process
// with the pidfd `member`, or a new one if it is -1. Returns as fork() does, and as after _Fork()
// the child may only make async-signal-safe calls. Any thread.
pid_t forkInside(const Realm& realm, int member);

}  // namespace sluice::lab
