// Takes a lab away: the processes inside, then the namespaces. Lab's own.
#pragma once

#include <string>

#include <sluice/base/status.h>
#include <sluice/lab/lab.h>

namespace sluice::lab {

// Removes all namespaces of this lab that exist, with whatever runs in them. `lockFd` stays open in
// the tools that are called. Returns whether there was anything.
Result<bool> removeNamespaces(const std::string& lab, int lockFd, const Progress& progress);

}  // namespace sluice::lab
