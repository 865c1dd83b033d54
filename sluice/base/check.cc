#include <sluice/base/check.h>

#include <cstdio>
#include <cstdlib>

namespace sluice::base {

void checkFailed(std::string_view condition, std::string_view values, const char* file, int line) {
  // Plain stdio: the logger may be what is broken.
  fmt::print(stderr, "sluice: check failed: {}{} at {}:{}\n", condition, values, file, line);
  std::fflush(stderr);
  std::abort();
}

}  // namespace sluice::base
