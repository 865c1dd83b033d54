// While it lives, Ctrl-C and SIGTERM do not end the process but are remembered, so that a command
// that has made something outside of itself (a lab) can end in good order. One at a time.
#pragma once

#include <signal.h>

namespace sluice::cli {

class Interruption final {
 public:
  Interruption();
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  static bool came();

 private:
  struct sigaction formerInt_{};
  struct sigaction formerTerm_{};
};

}  // namespace sluice::cli
