// Programs of their own that are commands of `sluice`: `sluice NAME` runs sluice-NAME, as git does.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace sluice::cli {

// Returns the folder of this program, which holds the programs that come with it; empty if it is
// unknown.
std::filesystem::path ownFolder();

struct ExternalCommand {
  std::string name;         // without "sluice-"
  std::string description;  // the first line of a script's opening comment or docstring; else empty
};

// Returns the programs sluice-NAME beside this program and on the PATH, sorted by name. The first
// of a name counts. Nothing is run.
std::vector<ExternalCommand> findExternalCommands();

// Replaces this process by the program sluice-NAME, beside this one or on the PATH. Returns only if
// there is no such program.
void runExternalCommand(const std::string& name, char** argv);

}  // namespace sluice::cli
