// Measures other programs on the links of a lab, for comparison: iperf3 and UCX's own measurement.
// Each call runs one of them from start to end, for some seconds. Any thread may call.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <sluice/base/clock.h>
#include <sluice/base/status.h>
#include <tools/lab/lab.h>

namespace sluice::bench {

// One TCP connection from a host to another.
using Flow = std::pair<int, int>;

// Returns the payload that all flows together got across, in Gbit/s, while all ran at once.
// REQUIRES: no host is the source, or the target, of two flows.
Result<double> iperfGbit(const lab::Lab& lab, const std::vector<Flow>& flows, Duration time);

// Returns the rate of UCX's own active messages of this size over TCP, in Gbit/s.
Result<double> ucxGbit(const lab::Lab& lab, Flow flow, size_t messageBytes, size_t messages);

// Returns the bandwidth in Gbit/s from the last line that ucx_perftest prints.
Result<double> parseUcxPerftest(std::string_view text);

}  // namespace sluice::bench
