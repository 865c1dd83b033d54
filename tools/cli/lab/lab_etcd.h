// etcd servers on hosts of a lab.
#pragma once

#include <string>

#include <tools/lab/lab.h>

namespace sluice::cli {

// Says what is missing if etcd cannot be started.
Status checkEtcdIsInstalled();

// Starts an etcd server on each of the lab's last layout.etcd hosts, waits until all serve, and
// returns their address as the option `members` takes it. The servers end with the lab, and their
// data goes with its files. REQUIRES: no threads.
Result<std::string> startEtcd(const lab::Lab& lab, const lab::Layout& layout);

}  // namespace sluice::cli
