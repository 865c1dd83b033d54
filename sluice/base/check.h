// Checks promises that sluice's own code makes to itself. A failed check is a bug in sluice: it
// prints the condition, the values given and the place, and aborts. An error that comes from
// outside is a Status instead (status.h).
#pragma once

#include <string>
#include <string_view>

#include <fmt/format.h>

namespace sluice::base {

[[noreturn]] void checkFailed(std::string_view condition, std::string_view values, const char* file,
                              int line);

// Makes `witness` hear the text of a failed check, before the process aborts. One per process; null:
// nobody hears it.
void setCheckWitness(void (*witness)(std::string_view text));

template <typename... Values>
std::string describeValues(const Values&... values) {
  std::string text;
  ((text += fmt::format(" [{}]", values)), ...);
  return text;
}

}  // namespace sluice::base

// SLUICE_CHECK(a == b, a, b): the values after the condition are printed when it does not hold.
#define SLUICE_CHECK(condition, ...)                                                          \
  (static_cast<bool>(condition)                                                               \
       ? static_cast<void>(0)                                                                 \
       : ::sluice::base::checkFailed(#condition, ::sluice::base::describeValues(__VA_ARGS__), \
                                     __FILE__, __LINE__))

// Does the same for checks that would cost too much in release builds: there it is gone.
#ifdef NDEBUG
#define SLUICE_DCHECK(condition, ...) \
  (true ? static_cast<void>(0) : SLUICE_CHECK(condition, __VA_ARGS__))
#else
#define SLUICE_DCHECK(condition, ...) SLUICE_CHECK(condition, __VA_ARGS__)
#endif
