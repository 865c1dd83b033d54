/// @file
/// Errors as values. A call that can fail returns a Status, or a Result<T> if it also has something
/// to give. Both are [[nodiscard]]: the compiler warns about an error that nobody looks at.
///
/// @code
///   sluice::Result<std::unique_ptr<sluice::Job>> job = sluice::Job::join();
///   if (!job.isOk()) return fail(job.status().toString());   // "peer lost: rank 3 is lost: ..."
///   (*job)->rank();
/// @endcode
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

/// Marks what libsluice.so exports.
#define SLUICE_API [[gnu::visibility("default")]]

namespace sluice {

/// The kind of an error, for programs that decide by it. The text is for people.
enum class Code {
  kOk,                ///< The call succeeded.
  kInvalidArgument,   ///< The caller, or a person, asked for something that cannot be.
  kNotFound,          ///< The thing that was named does not exist.
  kAlreadyExists,     ///< The thing that was to be made is there already.
  kPermissionDenied,  ///< The call needs a right (root, a key) that the process does not have.
  kUnavailable,       ///< Something outside the process is missing or cannot be reached now.
  kTimeout,           ///< A wait came to its end.
  kPeerLost,          ///< Another rank is gone; the text names it.
  kCancelled,         ///< The call was told to stop.
  kRefused,           ///< The other side, or a check, said no.
  kDataLoss,          ///< Bytes are missing, surplus or wrong.
  kInternal,          ///< A system call or a library failed in an unforeseen way.
};

/// Returns the code in words: "peer lost".
SLUICE_API std::string_view name(Code code);

/// Success, or an error with its code and one line of text. Cheap to copy; any thread.
class [[nodiscard]] SLUICE_API Status final {
 public:
  /// Makes a success.
  Status() = default;
  /// Makes an error. REQUIRES: `code` is not kOk.
  Status(Code code, std::string message);

  /// Returns true iff this is a success.
  bool isOk() const { return error_ == nullptr; }
  /// Returns isOk(), for conditions.
  explicit operator bool() const { return isOk(); }
  /// Returns the kind of the error, or kOk.
  Code code() const { return isOk() ? Code::kOk : error_->code; }
  /// Returns the text of the error, one line that says what to do; empty for a success.
  const std::string& message() const;

  /// Returns the same error with `context` before its text: "reading plan.json: no such file".
  Status withContext(std::string_view context) const;

  /// Returns code and text in one line: "ok" or "timeout: rank 3 has not answered".
  std::string toString() const;

  /// Compares code and text.
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

namespace detail {
/// Prints the error and ends the process: the value of an error was asked for.
[[noreturn]] SLUICE_API void endForWantOfAValue(const Status& status);
/// Returns `status`. REQUIRES: it is an error.
SLUICE_API Status checkedError(Status status);
}  // namespace detail

/// A T, or the error that says why there is none.
template <typename T>
class [[nodiscard]] Result final {
 public:
  /// Makes a success with its value. Implicit, so that a function can `return value;`.
  Result(T value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor)
  /// Makes an error. REQUIRES: `status` is one. Implicit, so that a function can `return status;`.
  Result(Status status)  // NOLINT(google-explicit-constructor)
      : status_(detail::checkedError(std::move(status))) {}

  /// Returns true iff there is a value.
  bool isOk() const { return value_.has_value(); }
  /// Returns isOk(), for conditions.
  explicit operator bool() const { return isOk(); }
  /// Returns the error, or a success if there is a value.
  const Status& status() const { return status_; }

  /// Returns the value. REQUIRES: isOk(); otherwise the process prints the error and ends.
  T& value() & {
    if (!isOk()) detail::endForWantOfAValue(status_);
    return *value_;
  }
  /// Returns the value, as above.
  const T& value() const& {
    if (!isOk()) detail::endForWantOfAValue(status_);
    return *value_;
  }
  /// Moves the value out, as above.
  T&& value() && {
    if (!isOk()) detail::endForWantOfAValue(status_);
    return std::move(*value_);
  }
  /// Returns value().
  T& operator*() & { return value(); }
  /// Returns value().
  const T& operator*() const& { return value(); }
  /// Returns value().
  T&& operator*() && { return std::move(*this).value(); }
  /// Reaches a member of value().
  T* operator->() { return &value(); }
  /// Reaches a member of value().
  const T* operator->() const { return &value(); }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace sluice
