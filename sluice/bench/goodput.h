// What the links of a lab carry for a program, measured with iperf3: the yardstick for bounds.
#pragma once

#include <string_view>

#include <sluice/base/status.h>
#include <sluice/base/units.h>
#include <sluice/lab/lab.h>

namespace sluice::bench {

// From host 1 to host 0, one TCP connection, after the first second. Takes about four seconds.
Result<Rate> measureGoodput(const lab::Lab& lab);

// The rate at which the receiver got payload, out of what `iperf3 --json` prints.
Result<Rate> parseIperf(std::string_view json);

}  // namespace sluice::bench
