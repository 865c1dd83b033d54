// Runs one of the system's tools (ip, tc, bridge, nft) to its end, without a shell. The calling
// thread waits, at most until the time limit.
#pragma once

#include <string>
#include <vector>

#include <sluice/base/clock.h>
#include <sluice/base/status.h>
#include <tools/lab/realm.h>

namespace sluice::lab {

struct ToolCall {
  // The first word is the program; it is searched for on the PATH and in the sbin directories.
  std::vector<std::string> command;
  std::string input = {};        // its stdin
  const Realm* realm = nullptr;  // the tool runs there, with the names of its networks
  int networkNamespace = -1;     // the tool runs there, if not -1
  int inheritedFd = -1;          // stays open in the tool, if not -1
  Duration limit = std::chrono::seconds(30);
};

// Returns the tool's stdout, or an error of one line if the tool fails, is missing or takes too
// long. The tool does not outlive the calling thread.
Result<std::string> runTool(const ToolCall& call);

}  // namespace sluice::lab
