// Errors as values. A lost peer, a timeout or a short message is something a caller handles, so it travels
// as a Status (or a Result<T>) through returns and completions. Broken promises between our own lines are
// SLUICE_CHECK (check.h) instead.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <sluice/base/check.h>

namespace sluice::base {

enum class Code {
  kOk,
  kInvalidArgument,   // the caller, or the person at the keyboard, asked for something that cannot be
  kNotFound,          // what was named does not exist
  kAlreadyExists,     // what was to be made is there already
  kPermissionDenied,  // needs a right (root, a key) that is not there
  kUnavailable,       // something outside is missing or not reachable now
  kTimeout,           // a wait came to its end
  kPeerLost,          // another rank is gone
  kCancelled,         // we were told to stop
  kRefused,           // the other side, or a check, said no
  kDataLoss,          // bytes that are short, long or wrong
  kInternal,          // a system call or library failed in a way nobody planned for
};

std::string_view name(Code code);

// Cheap to copy: success is one null pointer, and copies of an error share its text.
class [[nodiscard]] Status final {
 public:
  Status() = default;
  Status(Code code, std::string message);

  bool isOk() const { return error_ == nullptr; }
  explicit operator bool() const { return isOk(); }
  Code code() const { return isOk() ? Code::kOk : error_->code; }
  const std::string& message() const;

  // The same error, with `context` put before its text: "reading plan.json: no such file".
  Status withContext(std::string_view context) const;

  std::string toString() const;  // "ok" or "timeout: rank 3 has not answered"

  friend bool operator==(const Status& a, const Status& b) {
    return a.code() == b.code() && a.message() == b.message();
  }

 private:
  struct Error {
    Code code;
    std::string message;
  };
  std::shared_ptr<const Error> error_;
};

inline Status ok() {
  return {};
}

// The Status of a failed system call: "open /x: No such file or directory". Reads errno.
Status fromErrno(std::string_view what);
Status fromErrno(std::string_view what, int error);

// The Status of a call in a process that was forked from `parent` ("rank 3 of a sluice job"); see fork.h.
Status forkedStatus(std::string_view parent = "a rank of a sluice job");

// A T, or why there is none.
template <typename T>
class [[nodiscard]] Result final {
 public:
  Result(T value)
      : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor): `return value;` is the point
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    SLUICE_CHECK(!status_.isOk());
  }

  bool isOk() const { return value_.has_value(); }
  explicit operator bool() const { return isOk(); }
  const Status& status() const { return status_; }

  // REQUIRES: isOk()
  T& value() & {
    SLUICE_CHECK(isOk(), status_.toString());
    return *value_;
  }
  const T& value() const& {
    SLUICE_CHECK(isOk(), status_.toString());
    return *value_;
  }
  T&& value() && {
    SLUICE_CHECK(isOk(), status_.toString());
    return std::move(*value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace sluice::base

namespace sluice {
using base::Code;
using base::Result;
using base::Status;
}  // namespace sluice

// Leaves the function with the error of `expr`, if it is one.
#define SLUICE_RETURN_IF_ERROR(expr)                                                       \
  do {                                                                                     \
    if (::sluice::Status sluiceStatus = (expr); !sluiceStatus.isOk()) return sluiceStatus; \
  } while (false)

#define SLUICE_CONCAT_INNER(a, b) a##b
#define SLUICE_CONCAT(a, b) SLUICE_CONCAT_INNER(a, b)

// `SLUICE_ASSIGN_OR_RETURN(const auto plan, readPlan(path));` leaves the function with readPlan's error, if
// any.
#define SLUICE_ASSIGN_OR_RETURN(declaration, expr) \
  SLUICE_ASSIGN_OR_RETURN_INNER(SLUICE_CONCAT(sluiceResult, __LINE__), declaration, expr)
#define SLUICE_ASSIGN_OR_RETURN_INNER(result, declaration, expr) \
  auto result = (expr);                                          \
  if (!result.isOk()) return result.status();                    \
  declaration = *std::move(result)
