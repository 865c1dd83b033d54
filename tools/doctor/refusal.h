// Explains why a rank could not join: from the error of the rendezvous and from what the rank knows
// of itself. A pure function.
#pragma once

#include <optional>

#include <sluice/base/status.h>
#include <tools/doctor/finding.h>
#include <tools/doctor/host_report.h>

namespace sluice::doctor {

// Empty if the error is no fault of the network or of the job's settings; then it is to be printed
// as it is. `ownAddresses` are those of this host.
std::optional<Finding> explainRefusal(const Status& error, uint32_t rank, const HostReport& own,
                                      const std::vector<std::string>& ownAddresses);

}  // namespace sluice::doctor
