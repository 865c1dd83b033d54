// Errors as values, inside sluice: Status and Result (sluice/status.h), and the functions and
// macros that make and pass them on. Broken promises inside sluice's own code are SLUICE_CHECK
// (check.h) instead.
#pragma once

#include <string_view>

#include <sluice/status.h>

#include <sluice/base/check.h>

namespace sluice::base {

inline Status ok() {
  return {};
}

// The Status of a failed system call: "open /x: No such file or directory". Reads errno.
Status fromErrno(std::string_view what);
Status fromErrno(std::string_view what, int error);

// The Status of a call in a process that was forked from `parent` ("rank 3 of a sluice job"); see
// fork.h.
Status forkedStatus(std::string_view parent = "a rank of a sluice job");

}  // namespace sluice::base

// Returns the error of `expr` from the function, if `expr` is one.
#define SLUICE_RETURN_IF_ERROR(expr)                                                       \
  do {                                                                                     \
    if (::sluice::Status sluiceStatus = (expr); !sluiceStatus.isOk()) return sluiceStatus; \
  } while (false)

#define SLUICE_CONCAT_INNER(a, b) a##b
#define SLUICE_CONCAT(a, b) SLUICE_CONCAT_INNER(a, b)

// `SLUICE_ASSIGN_OR_RETURN(const auto plan, readPlan(path));` returns readPlan's error from the
// function, if there is one.
#define SLUICE_ASSIGN_OR_RETURN(declaration, expr) \
  SLUICE_ASSIGN_OR_RETURN_INNER(SLUICE_CONCAT(sluiceResult, __LINE__), declaration, expr)
#define SLUICE_ASSIGN_OR_RETURN_INNER(result, declaration, expr) \
  auto result = (expr);                                          \
  if (!result.isOk()) return result.status();                    \
  declaration = *std::move(result)
