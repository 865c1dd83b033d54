// The only place where UCX's codes become ours. Everything above speaks Status.
#pragma once

#include <string_view>

#include <ucs/type/status.h>

#include <sluice/base/status.h>

namespace sluice::fabric::ucx {

// Makes a Status of UCX's code; `what` names the operation: "connecting to rank 3".
Status fromUcs(ucs_status_t status, std::string_view what);

}  // namespace sluice::fabric::ucx
