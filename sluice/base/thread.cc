#include <sluice/base/thread.h>

#include <pthread.h>

#include <string>

namespace sluice::base {

SignalsBlocked::SignalsBlocked() {
  sigset_t blocked{};
  ::sigfillset(&blocked);
  // Signals of faults stay as they are. If a blocked one is raised by a fault, the kernel ends
  // the process at once, and neither a debugger's handler nor a sanitizer's ever runs.
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS})
    ::sigdelset(&blocked, fault);
  ::pthread_sigmask(SIG_BLOCK, &blocked, &former_);
}

SignalsBlocked::~SignalsBlocked() {
  ::pthread_sigmask(SIG_SETMASK, &former_, nullptr);
}

std::thread startThread(std::string_view name, std::function<void()> body) {
  // A thread inherits the mask of the one that starts it. So there is no moment in which a
  // handler of the program, Python's for example, could run in the new thread.
  const SignalsBlocked whileItStarts;
  std::thread thread(std::move(body));
  // Linux refuses names of more than 15 characters.
  ::pthread_setname_np(thread.native_handle(), std::string(name.substr(0, 15)).c_str());
  return thread;
}

}  // namespace sluice::base
