// Tells whether a test of many rounds makes fewer of them. For tests only, on any thread.
#pragma once

#include <cstdlib>

namespace sluice::base {

// True under a sanitizer, where a round takes up to twenty times as long: a bad access or a race
// shows itself in the first rounds, and rare wrong results are looked for by the other builds.
// LONG_TESTS=1 in the environment makes all rounds there too.
inline bool testsAreShort() {
#ifdef SLUICE_SANITIZED
  return std::getenv("LONG_TESTS") == nullptr;
#else
  return false;
#endif
}

}  // namespace sluice::base
