#include <tools/sim/host_trace.h>

#include <filesystem>
#include <system_error>

#include <sluice/data/gate/gates.h>
#include <sluice/observe/trace/trace_file.h>

namespace sluice::sim {
namespace {

constexpr const char* kSessionOfSimulation = "simulated";

}  // namespace

Status writeHostTraces(const std::string& directory, const Model& model,
                       std::span<const TracedHost> hosts) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error)
    return base::fromErrno("cannot make the directory of the trace, " + directory, error.value());
  for (const TracedHost& host : hosts) {
    trace::RankTrace trace;
    trace.session = kSessionOfSimulation;
    trace.rank = host.rank;
    trace.tensors = gate::tensorNames(model);
    for (const TracedHost& other : hosts) {
      if (other.rank != host.rank) trace.clocks[other.rank] = {};
    }
    host.recorder->addTo(trace);
    SLUICE_RETURN_IF_ERROR(trace::writeTraces(
        trace::traceFileName(directory, kSessionOfSimulation, host.rank), std::span(&trace, 1)));
  }
  return base::ok();
}

}  // namespace sluice::sim
