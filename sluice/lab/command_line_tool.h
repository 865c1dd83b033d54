// Runs one of the system's tools (ip, tc, bridge, nft) to its end, without a shell. The calling
// thread waits, at most until the time limit.
#pragma once

#include <string>
#include <vector>

#include <sluice/base/clock.h>
#include <sluice/base/status.h>

namespace sluice::lab {

struct ToolCall {
  std::vector<std::string>
      command;                // the program is looked for on the PATH and in the sbin directories
  std::string input = {};     // its stdin
  int networkNamespace = -1;  // runs there, if not -1
  int inheritedFd = -1;       // stays open in the tool, if not -1
  Duration limit = std::chrono::seconds(30);
};

// What it wrote to stdout. A tool that fails, or is not there, or takes too long is an error of one
// line. The tool does not outlive the calling thread.
Result<std::string> runTool(const ToolCall& call);

}  // namespace sluice::lab
