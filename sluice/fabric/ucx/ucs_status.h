// The only place where UCX's codes become ours. Everything above speaks Status.
#pragma once

#include <string_view>

#include <ucs/type/status.h>

#include <sluice/base/status.h>

namespace sluice::fabric::ucx {

// `what` was being done: "connecting to rank 3".
Status fromUcs(ucs_status_t status, std::string_view what);

}  // namespace sluice::fabric::ucx
