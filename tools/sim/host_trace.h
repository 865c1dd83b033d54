// The traces of a simulated job's hosts, in simulated time, as files that `sluice trace` and
// Perfetto open.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <sluice/base/status.h>
#include <sluice/data/plan/model.h>
#include <sluice/observe/trace/recorder.h>

namespace sluice::sim {

// A host whose path of slices was recorded.
struct TracedHost {
  Rank rank{};
  const trace::Recorder* recorder = nullptr;
};

// Writes one file per host into the directory, and makes it first. All hosts have one clock.
Status writeHostTraces(const std::string& directory, const Model& model,
                       std::span<const TracedHost> hosts);

}  // namespace sluice::sim
