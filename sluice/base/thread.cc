#include <sluice/base/thread.h>

#include <pthread.h>

#include <string>

namespace sluice::base {

SignalsBlocked::SignalsBlocked() {
  sigset_t blocked{};
  ::sigfillset(&blocked);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS})
    ::sigdelset(&blocked, fault);
  ::pthread_sigmask(SIG_BLOCK, &blocked, &former_);
}

SignalsBlocked::~SignalsBlocked() {
  ::pthread_sigmask(SIG_SETMASK, &former_, nullptr);
}

std::thread startThread(std::string_view name, std::function<void()> body) {
  const SignalsBlocked whileItStarts;
  std::thread thread(std::move(body));
  ::pthread_setname_np(thread.native_handle(), std::string(name.substr(0, 15)).c_str());
  return thread;
}

}  // namespace sluice::base
