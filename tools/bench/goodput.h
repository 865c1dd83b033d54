// Measures with iperf3 the rate that the links of a lab carry for a program: the yardstick for
// bounds.
#pragma once

#include <string_view>

#include <sluice/base/status.h>
#include <sluice/base/units.h>
#include <tools/lab/lab.h>

namespace sluice::bench {

// Measures one TCP connection from host 1 to host 0, after its first second. Takes about four
// seconds.
Result<Rate> measureGoodput(const lab::Lab& lab);

// Returns the rate at which the receiver got payload, from the output of `iperf3 --json`.
Result<Rate> parseIperf(std::string_view json);

}  // namespace sluice::bench
