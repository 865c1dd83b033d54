// Measures other programs on the links of a lab, for comparison and as the yardstick for bounds:
// iperf3 and UCX's own measurement. Each call runs one of them from start to end, for some seconds.
// Any thread may call.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include <sluice/base/clock.h>
#include <sluice/base/status.h>
#include <sluice/base/units.h>
#include <tools/lab/lab.h>

namespace sluice::bench {

// One TCP connection from a host to another.
using Flow = std::pair<int, int>;

// Returns the payload that all flows together got across while all ran at once, after their first
// second. REQUIRES: no host is the source, or the target, of two flows.
Result<Rate> measureGoodput(const lab::Lab& lab, const std::vector<Flow>& flows, Duration time);

// Returns the rate of UCX's own active messages of this size over TCP, in Gbit/s.
Result<double> ucxGbit(const lab::Lab& lab, Flow flow, size_t messageBytes, size_t messages);

// Returns the rate at which the receiver got payload, from the output of `iperf3 --json`.
Result<Rate> parseIperf(std::string_view json);
// Returns the bandwidth in Gbit/s from the last line that ucx_perftest prints.
Result<double> parseUcxPerftest(std::string_view text);

}  // namespace sluice::bench
