// Finds Python distributions that install a package named sluice beside ours: pip lets one
// overwrite the files of the other. python/sluice/_job/ownership.py does the same for Python programs.
#pragma once

#include <filesystem>
#include <string>

namespace sluice::cli {

// Returns one line about the other owners in the Python environment that `programFolder` is the
// bin/ of; empty if there is none, or if sluice was not installed there by pip.
std::string complaintAboutOwners(const std::filesystem::path& programFolder);

}  // namespace sluice::cli
