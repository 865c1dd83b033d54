#include <tools/cli/interruption.h>

namespace sluice::cli {
namespace {

volatile sig_atomic_t interrupted = 0;  // a signal handler can reach nothing else

}  // namespace

Interruption::Interruption() {
  interrupted = 0;
  struct sigaction remember{};
  remember.sa_handler = [](int) { interrupted = 1; };
  remember.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &remember, &formerInt_);
  ::sigaction(SIGTERM, &remember, &formerTerm_);
}

Interruption::~Interruption() {
  ::sigaction(SIGINT, &formerInt_, nullptr);
  ::sigaction(SIGTERM, &formerTerm_, nullptr);
}

bool Interruption::came() {
  return interrupted != 0;
}

}  // namespace sluice::cli
