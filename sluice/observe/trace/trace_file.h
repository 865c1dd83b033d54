// Traces as files in Chrome's trace event format, which Perfetto (https://ui.perfetto.dev) and
// chrome://tracing open: a process per rank, a track per stage. Further data, which sluice itself
// needs to read traces back, lies beside the events, in "otherData".
#pragma once

#include <span>
#include <string>
#include <vector>

#include <sluice/base/status.h>
#include <sluice/observe/trace/rank_trace.h>
#include <sluice/observe/trace/torch_profile.h>

namespace sluice::trace {

// DIR/SESSION.rank-3.json
std::string traceFileName(const std::string& directory, const std::string& session, Rank rank);

// Writes the traces of one rank, or of several on one clock. A stage whose end no trace knows (a
// push, if only its sender's trace is there) is written as the moment of its beginning. The profiles
// go into the processes of their ranks. REQUIRES: all traces are of one session; checkRanks() has
// accepted the profiles.
Status writeTraces(const std::string& path, std::span<const RankTrace> traces,
                   std::span<const TorchProfile> profiles = {});

Result<std::vector<RankTrace>> readTraces(const std::string& path);

// Reads the traces of all ranks of a session, from the files that they wrote into one directory, by
// rank. An empty session stands for the only one that is there.
Result<std::vector<RankTrace>> readDirectory(const std::string& directory,
                                             const std::string& session);

}  // namespace sluice::trace
