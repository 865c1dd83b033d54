#include <sluice/base/thread.h>

#include <signal.h>

#include <gtest/gtest.h>

namespace sluice::base {
namespace {

sigset_t ownMask() {
  sigset_t mask{};
  EXPECT_EQ(::pthread_sigmask(SIG_BLOCK, nullptr, &mask), 0);
  return mask;
}

TEST(Thread, BlocksSignalsButNotFaultsAndLeavesTheCallerAsItWas) {
  const sigset_t before = ownMask();
  sigset_t inside{};
  startThread("test", [&] { inside = ownMask(); }).join();
  for (const int signal :
       {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGALRM, SIGUSR1, SIGPROF, SIGRTMIN, SIGRTMAX})
    EXPECT_EQ(::sigismember(&inside, signal), 1) << signal;
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT})
    EXPECT_EQ(::sigismember(&inside, fault), 0) << fault;
  const sigset_t after = ownMask();
  for (int signal = 1; signal < SIGRTMIN; ++signal)
    EXPECT_EQ(::sigismember(&before, signal), ::sigismember(&after, signal)) << signal;
}

}  // namespace
}  // namespace sluice::base
