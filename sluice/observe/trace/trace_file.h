// Traces as files in Chrome's trace event format, which Perfetto (https://ui.perfetto.dev) and
// chrome://tracing open: a process per rank, a track per stage. Further data, which sluice itself
// needs to read traces back (tools/trace/trace_reader.h), lies beside the events, in "otherData".
#pragma once

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sluice/base/status.h>
#include <sluice/observe/trace/event_writer.h>
#include <sluice/observe/trace/journeys.h>
#include <sluice/observe/trace/rank_trace.h>

namespace sluice::trace {

constexpr int kFileVersion = 1;
constexpr std::string_view kSliceCategory = "slice";
constexpr std::string_view kWaitCategory = "wait";
constexpr size_t kWaitTrack = kPath.size();     // after the stages
constexpr size_t kFreeTracks = kWaitTrack + 1;  // sluice writes to no track from here on

// Returns the number of a stage's track, which is its place on the path.
constexpr size_t trackOf(Stage stage) {
  return static_cast<size_t>(std::ranges::find(kPath, stage) - kPath.begin());
}

// Return texts as JSON has them.
std::string quoted(const std::string& text);
std::vector<std::string> quotedAll(const std::vector<std::string>& texts);

// Returns what every event of a slice says of itself. `name` is quoted.
std::string argsOf(Rank rank, const std::string& name, TensorId tensor, SliceId slice, Step step,
                   Rank peer);

// Events that lie beside those of the traces: a merged file has arrows between ranks and the events
// of other tools.
struct FurtherEvents {
  TimePoint first = TimePoint::max();  // no further event is earlier
  std::function<Status(EventWriter&, const Journeys&)> write;
};

// DIR/SESSION.rank-3.json
std::string traceFileName(const std::string& directory, const std::string& session, Rank rank);

// Writes the traces of one rank, or of several on one clock. A stage whose end no trace knows (a
// push, if only its sender's trace is there) is written as the moment of its beginning. REQUIRES:
// all traces are of one session.
Status writeTraces(const std::string& path, std::span<const RankTrace> traces,
                   const FurtherEvents& further = {});

}  // namespace sluice::trace
