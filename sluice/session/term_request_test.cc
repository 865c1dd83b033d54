#include <sluice/session/term_request.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include <gtest/gtest.h>

namespace sluice::session {
namespace {

// Runs `inChild` in a child process. Returns its exit code, or minus the signal that has ended it.
int endOf(const std::function<int()>& inChild) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(10);
    ::_exit(inChild());
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(TermRequest, RemembersTheFirstAndTheSecondEndsTheProcess) {
  EXPECT_EQ(endOf([] {
              const TermRequest term;
              if (!term.hasSignal() || TermRequest::came()) return 1;
              ::raise(SIGTERM);
              if (!TermRequest::came()) return 2;
              ::raise(SIGTERM);
              return 3;
            }),
            -SIGTERM);
}

TEST(TermRequest, LeavesAHandlerOfTheProgramAlone) {
  for (const auto former :
       {static_cast<void (*)(int)>([](int) {}), static_cast<void (*)(int)>(SIG_IGN)}) {
    EXPECT_EQ(endOf([former] {
                ::signal(SIGTERM, former);
                {
                  const TermRequest term;
                  if (term.hasSignal()) return 1;
                  ::raise(SIGTERM);
                  if (TermRequest::came()) return 2;
                }
                struct sigaction now{};
                ::sigaction(SIGTERM, nullptr, &now);
                return now.sa_handler == former ? 0 : 3;
              }),
              0);
  }
}

TEST(TermRequest, GivesTheSignalBackAndASecondJobSharesIt) {
  EXPECT_EQ(endOf([] {
              {
                const TermRequest first;
                const TermRequest second;
                if (!second.hasSignal()) return 1;
              }
              ::raise(SIGTERM);
              return 2;
            }),
            -SIGTERM);
}

TEST(TermRequest, AForkedChildIsEndedByTheSignal) {
  EXPECT_EQ(endOf([] {
              const TermRequest term;
              const int child = endOf([] {
                ::raise(SIGTERM);
                return 1;
              });
              return child == -SIGTERM && !TermRequest::came() ? 0 : 2;
            }),
            0);
}

}  // namespace
}  // namespace sluice::session
