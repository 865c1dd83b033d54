// Saves the rings of this process when it aborts: a check of sluice has failed, std::terminate()
// ran, or another library called abort(). Takes SIGABRT while a ring is registered, and passes it on
// to the handler before it; takes no other signal unless a user has named one.
#pragma once

#include <string>
#include <string_view>

#include <sluice/base/fork.h>
#include <sluice/observe/flight/ring.h>

namespace sluice::flight {

// Where a ring goes. Constant once it is registered.
struct CrashTarget {
  Ring* ring = nullptr;
  std::string path;             // empty: the ring is a mapped file, and there is nothing to write
  std::string words;            // for people, on standard error, once it is written
  base::ProcessMark process{};  // a forked child saves nothing
};

// A ring that is saved when the process aborts, while this lives. Any thread; not in a signal
// handler.
class CrashDump final {
 public:
  explicit CrashDump(CrashTarget target);
  ~CrashDump();
  CrashDump(const CrashDump&) = delete;
  CrashDump& operator=(const CrashDump&) = delete;

  // Makes a signal save all rings, for as long as the process lives. False iff the program has a
  // handler for it, which stays.
  static bool saveOn(int signal);

 private:
  const CrashTarget target_;
  size_t place_;
};

}  // namespace sluice::flight
