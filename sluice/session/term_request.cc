#include <sluice/session/term_request.h>

#include <signal.h>

#include <atomic>

#include <sluice/base/fork.h>

namespace sluice::session {
namespace {

// These are globals, since a signal handler can reach nothing else.
std::atomic<bool> hasCome{false};
std::atomic<base::ProcessMark> taker{};
static_assert(std::atomic<bool>::is_always_lock_free &&
              std::atomic<base::ProcessMark>::is_always_lock_free);

void rememberTerm(int /*signal*/) {
  // SA_RESETHAND has restored the default action already, and a forked child is to follow it.
  if (taker.load().isInherited()) {
    ::raise(SIGTERM);
  } else {
    hasCome = true;
  }
}

}  // namespace

TermRequest::TermRequest() {
  struct sigaction now{};
  if (::sigaction(SIGTERM, nullptr, &now) != 0) return;
  hasSignal_ = now.sa_handler == &rememberTerm;  // another job of this process has it
  // A handler of the program's own, or an ignored signal, is a decision that is not ours to
  // change. SA_RESETHAND gives the second SIGTERM its usual effect, so a process that hangs can
  // still be ended.
  if (hasSignal_ || now.sa_handler != SIG_DFL) return;
  hasCome = false;
  taker = base::ProcessMark();
  struct sigaction remember{};
  remember.sa_handler = &rememberTerm;
  remember.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);
  hasSignal_ = isOwner_ = ::sigaction(SIGTERM, &remember, nullptr) == 0;
}

TermRequest::~TermRequest() {
  struct sigaction now{};
  if (!isOwner_ || ::sigaction(SIGTERM, nullptr, &now) != 0 || now.sa_handler != &rememberTerm)
    return;
  now.sa_handler = SIG_DFL;
  ::sigaction(SIGTERM, &now, nullptr);
}

bool TermRequest::came() {
  return hasCome;
}

}  // namespace sluice::session
