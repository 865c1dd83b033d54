// Removes a lab: first the processes inside, then the namespaces. Only Workshop uses this file.
#pragma once

#include <string>

#include <sluice/base/status.h>
#include <tools/lab/lab.h>
#include <tools/lab/realm.h>

namespace sluice::lab {

// Removes all namespaces of this lab that exist, with all processes in them, and the realm too if it
// is not the machine's. `lockFd` stays open in the tools that are called. Returns true iff there was
// anything to remove.
Result<bool> removeNamespaces(const Realm& realm, const std::string& lab, int lockFd,
                              const Progress& progress);

}  // namespace sluice::lab
