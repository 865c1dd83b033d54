// Reads the traces that sluice/observe/trace/trace_file.h writes.
#pragma once

#include <string>
#include <vector>

#include <sluice/base/status.h>
#include <sluice/observe/trace/rank_trace.h>

namespace sluice::trace {

// Reads the traces of one file. Events of other tools are left out.
Result<std::vector<RankTrace>> readTraces(const std::string& path);

// Reads the traces of all ranks of a session, from the files that they wrote into one directory, by
// rank. An empty session stands for the only one that is there.
Result<std::vector<RankTrace>> readDirectory(const std::string& directory,
                                             const std::string& session);

}  // namespace sluice::trace
