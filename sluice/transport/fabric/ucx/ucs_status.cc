#include <sluice/transport/fabric/ucx/ucs_status.h>

#include <fmt/format.h>

#include <sluice/transport/fabric/ucx/library.h>

namespace sluice::fabric::ucx {
namespace {

Code codeOf(ucs_status_t status) {
  switch (status) {
    case UCS_OK: return Code::kOk;
    // UCX reports any of these when the other end of a connection is gone; a killed process mostly
    // shows as the last one.
    case UCS_ERR_CONNECTION_RESET:
    case UCS_ERR_NOT_CONNECTED:
    case UCS_ERR_REJECTED:
    case UCS_ERR_UNREACHABLE:
    case UCS_ERR_ENDPOINT_TIMEOUT: return Code::kPeerLost;
    case UCS_ERR_TIMED_OUT: return Code::kTimeout;
    case UCS_ERR_CANCELED: return Code::kCancelled;
    case UCS_ERR_INVALID_PARAM:
    case UCS_ERR_INVALID_ADDR: return Code::kInvalidArgument;
    case UCS_ERR_NO_DEVICE:
    case UCS_ERR_NO_RESOURCE: return Code::kUnavailable;
    case UCS_ERR_MESSAGE_TRUNCATED: return Code::kDataLoss;
    default: return Code::kInternal;
  }
}

}  // namespace

Status fromUcs(ucs_status_t status, std::string_view what) {
  if (status == UCS_OK) return {};
  return {codeOf(status),
          fmt::format("{}: UCX says \"{}\"", what, library().ucs_status_string(status))};
}

}  // namespace sluice::fabric::ucx
