// Linux network namespaces by name, as `ip netns` keeps them, and the processes inside them.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <sluice/base/status.h>
#include <sluice/net/fd.h>

namespace sluice::lab {

Result<net::Fd> openNamespace(const std::string& name);  // kNotFound if it does not exist
// Returns the namespaces of the lab that exist, whoever made them.
std::vector<std::string> namespacesOf(const std::string& lab);

// Returns the processes whose network is one of these namespaces, by namespace.
std::map<std::string, std::vector<pid_t>> processesIn(const std::vector<std::string>& namespaces);

// Moves the calling thread into the network and gives it a /sys that shows that network's
// interfaces (UCX looks there), in a mount namespace of its own. Makes only async-signal-safe
// calls, for use between fork and exec. Returns false and leaves errno on failure.
bool enterNamespace(int networkNamespace);

// Gives the calling process, first of its kind in a new PID namespace, a /proc that shows that
// namespace. REQUIRES: enterNamespace() before. Async-signal-safe.
bool mountOwnProc();

// Runs `work` on a thread inside the network namespace, and waits for it.
Status runInside(int networkNamespace, const std::function<Status()>& work);

}  // namespace sluice::lab
