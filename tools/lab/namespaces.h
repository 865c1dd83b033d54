// Linux network namespaces by name, as `ip netns` keeps them, and the processes inside them.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include <sluice/base/net/fd.h>
#include <sluice/base/status.h>
#include <tools/lab/realm.h>

namespace sluice::lab {

// Returns kNotFound if it does not exist.
Result<net::Fd> openNamespace(const Realm& realm, const std::string& name);
// Returns the namespaces of the lab that exist, whoever made them.
std::vector<std::string> namespacesOf(const Realm& realm, const std::string& lab);

// Returns the processes whose network is one of these namespaces, by namespace.
std::map<std::string, std::vector<pid_t>> processesIn(const Realm& realm,
                                                      const std::vector<std::string>& namespaces);

// The rest is for use between fork and exec: it makes only async-signal-safe calls. On failure it
// returns false and leaves errno.

// Moves the calling process into the network, with a mount namespace of its own.
bool enterNamespace(int networkNamespace);

// The mounts below need enterNamespace() before. A container may refuse them.

// Mounts a /sys that shows the interfaces of the network (UCX looks there).
bool mountOwnSys();
// Mounts a /proc that shows the PID namespace of the calling process.
bool mountOwnProc();
// Tells the user on stderr about a mount that was refused; reads errno.
void sayRefused(const char* mount);

}  // namespace sluice::lab
