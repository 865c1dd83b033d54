// Threads of sluice leave signals to the program: the kernel may deliver a process's signal on any
// thread that does not block it, and a handler of the program (Python's, a profiler's) is not
// written for sluice's threads.
#pragma once

#include <signal.h>

#include <functional>
#include <string_view>
#include <thread>

namespace sluice::base {

// Blocks signals on the calling thread while it lives. Threads that are made meanwhile inherit this
// from their first instruction on: use it around calls of libraries that make threads of their own.
// Signals of a fault in the thread itself (SIGSEGV and its like) stay as they are, so that a crash
// is still reported by its handler.
class SignalsBlocked final {
 public:
  SignalsBlocked();
  ~SignalsBlocked();
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t former_{};
};

// Starts a thread that blocks signals. `name` is what `top -H` shows, cut to 15 characters.
std::thread startThread(std::string_view name, std::function<void()> body);

}  // namespace sluice::base
