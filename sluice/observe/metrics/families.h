// Readings as Prometheus' metric families. Used by endpoint.cc only; the one header here that knows
// prometheus-cpp.
#pragma once

#include <span>
#include <vector>

#include <prometheus/metric_family.h>

#include <sluice/observe/metrics/endpoint.h>

namespace sluice::metrics {

// One family per metric, with one row or more per session.
std::vector<prometheus::MetricFamily> familiesOf(std::span<const Reading> readings);

}  // namespace sluice::metrics
