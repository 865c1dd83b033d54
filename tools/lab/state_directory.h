// The directory of the files of all labs (state.h): /run/sluice/labs for root, and one of their own
// for every other user. Any thread.
#pragma once

#include <filesystem>

#include <sluice/base/status.h>

namespace sluice::lab {

// True iff labs are made in the machine's own realm (realm.h).
bool worksAsRoot();

// Makes the directory if it is missing. Returns kPermissionDenied if somebody else could write to
// it.
Result<std::filesystem::path> stateDirectory();

}  // namespace sluice::lab
