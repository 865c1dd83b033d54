// Readings as a page in Prometheus' text format, version 0.0.4. Used by endpoint.cc only.
#pragma once

#include <span>
#include <string>

#include <sluice/observe/metrics/endpoint.h>

namespace sluice::metrics {

// One metric after the other, with one row or more per session.
std::string pageOf(std::span<const Reading> readings);

}  // namespace sluice::metrics
