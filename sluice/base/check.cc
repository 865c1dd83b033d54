#include <sluice/base/check.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace sluice::base {
namespace {

std::atomic<void (*)(std::string_view)> witness{nullptr};  // of the process, as abort() is

}  // namespace

void setCheckWitness(void (*next)(std::string_view text)) {
  witness = next;
}

void checkFailed(std::string_view condition, std::string_view values, const char* file, int line) {
  // Plain stdio: the logger may be what is broken.
  const std::string text =
      fmt::format("check failed: {}{} at {}:{}", condition, values, file, line);
  fmt::print(stderr, "sluice: {}\n", text);
  std::fflush(stderr);
  if (const auto hear = witness.load()) hear(text);
  std::abort();
}

}  // namespace sluice::base
