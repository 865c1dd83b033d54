#include <sluice/session/tracing.h>

#include <filesystem>
#include <system_error>

#include <sluice/base/log.h>
#include <sluice/base/options.h>
#include <sluice/observe/trace/trace_file.h>
#include <sluice/transport/fabric/common.h>

namespace sluice::session {

Result<std::unique_ptr<Tracing>> Tracing::begin(const base::Config& config, const Model& model,
                                                const std::string& session, Rank rank) {
  const std::string& directory = config.text(option::kTrace);
  if (directory.empty()) return std::unique_ptr<Tracing>();
  const int64_t capacity = config.integer(option::kTraceEvents);
  if (capacity < 1) return Status(Code::kInvalidArgument, "trace-events must be at least 1");
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error)
    return base::fromErrno("cannot make the directory of the trace, " + directory, error.value());
  std::unique_ptr<Tracing> tracing(
      new Tracing(trace::traceFileName(directory, session, rank), static_cast<size_t>(capacity)));
  tracing->trace_.session = session;
  tracing->trace_.rank = rank;
  for (const auto& tensor : model.tensors) tracing->trace_.tensors.push_back(tensor.name);
  tracing->trace_.wall = trace::readWallClock();
  return tracing;
}

void Tracing::noteClocks(const fabric::PeerAwareFabric& fabric) {
  const Status noted = fabric::runAndWait(fabric.loop(), [&] {
    for (uint32_t r = 0; r < fabric.worldSize(); ++r) {
      if (const auto clock = fabric.clockOffset(Rank{r})) trace_.clocks[Rank{r}] = *clock;
    }
  });
  if (!noted.isOk())
    log("session").warn("the trace lacks the other ranks' clocks: {}", noted.message());
}

void Tracing::write() {
  recorder_.addTo(trace_);
  // The wall clock may have been set during training: both readings together say by how much it
  // can be wrong.
  trace_.wall = trace::covering(*trace_.wall, trace::readWallClock());
  const Status written = trace::writeTraces(path_, std::span(&trace_, 1));
  if (!written.isOk())
    return log("session").warn("the trace could not be written: {}", written.message());
  log("session").info("trace: {} events and {} waits in {} ({} earlier ones had no room)",
                      trace_.events.size(), trace_.waits.size(), path_, trace_.lost);
}

}  // namespace sluice::session
