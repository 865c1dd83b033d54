#include <sluice/base/status.h>

#include <cerrno>
#include <cstdlib>
#include <system_error>

namespace sluice {

std::string_view name(Code code) {
  switch (code) {
    case Code::kOk: return "ok";
    case Code::kInvalidArgument: return "invalid argument";
    case Code::kNotFound: return "not found";
    case Code::kAlreadyExists: return "already exists";
    case Code::kPermissionDenied: return "permission denied";
    case Code::kUnavailable: return "unavailable";
    case Code::kTimeout: return "timeout";
    case Code::kPeerLost: return "peer lost";
    case Code::kCancelled: return "cancelled";
    case Code::kRefused: return "refused";
    case Code::kDataLoss: return "data loss";
    case Code::kInternal: return "internal error";
  }
  return "?";
}

Status::Status(Code code, std::string message) {
  SLUICE_CHECK(code != Code::kOk, message);
  // An error is shared and never changes, so that a Status is one pointer and costs nothing to
  // copy where all went well.
  error_ = std::make_shared<const Error>(Error{code, std::move(message)});
}

const std::string& Status::message() const {
  static const std::string kEmpty;
  return isOk() ? kEmpty : error_->message;
}

Status Status::withContext(std::string_view context) const {
  if (isOk()) return *this;
  return {code(), std::string(context) + ": " + message()};
}

std::string Status::toString() const {
  if (isOk()) return "ok";
  return std::string(name(code())) + ": " + message();
}

void detail::endForWantOfAValue(const Status& status) {
  SLUICE_CHECK(status.isOk() && "there is a value", status.toString());
  std::abort();
}

Status detail::checkedError(Status status) {
  SLUICE_CHECK(!status.isOk());
  return status;
}

}  // namespace sluice

namespace sluice::base {

Status forkedStatus(std::string_view parent) {
  return {Code::kUnavailable, "this process was forked from " + std::string(parent) +
                                  " and is not a member of it; make the call in the parent"};
}

Status fromErrno(std::string_view what) {
  return fromErrno(what, errno);
}

Status fromErrno(std::string_view what, int error) {
  Code code = Code::kInternal;
  switch (error) {
    case ENOENT: code = Code::kNotFound; break;
    case EEXIST: code = Code::kAlreadyExists; break;
    case EPERM:
    case EACCES: code = Code::kPermissionDenied; break;
    case EINVAL: code = Code::kInvalidArgument; break;
    case ETIMEDOUT: code = Code::kTimeout; break;
    case ECONNREFUSED:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EADDRINUSE:
    case EADDRNOTAVAIL: code = Code::kUnavailable; break;
    case ECONNRESET:
    case EPIPE: code = Code::kPeerLost; break;
    default: break;
  }
  return {code, std::string(what) + ": " + std::generic_category().message(error)};
}

}  // namespace sluice::base
