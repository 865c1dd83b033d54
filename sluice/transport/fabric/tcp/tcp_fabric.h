// The default engine: TCP on base's loop, for Ethernet and wide-area links. docs/fabric.md says
// what a stranger can and cannot do with its port.
//
// One connection for each rank, lane and direction, made with the first message, so that a rank
// that talks to few ranks keeps few connections. Both ends prove the job key first; between hosts
// everything is inside TLS 1.3.
#pragma once

#include <memory>
#include <vector>

#include <sluice/base/config.h>
#include <sluice/base/net/address.h>
#include <sluice/base/net/epoll_loop.h>
#include <sluice/secret/door/doorman.h>
#include <sluice/secret/job_key.h>
#include <sluice/transport/fabric/fabric.h>
#include <sluice/transport/fabric/node_fabric.h>
#include <sluice/transport/fabric/tcp/listener.h>
#include <sluice/transport/fabric/tcp/tcp_options.h>

namespace sluice::fabric {

// The identity of this rank, and the addresses of all ranks.
struct TcpMembership {
  Rank rank{};
  Epoch epoch{};
  std::vector<Address> addresses;  // of every rank's listener, by rank
  secret::JobKey key = secret::JobKey::none();
  door::DoorThread door{};  // the thread that holds off strangers; null: the fabric makes one
};

// REQUIRES: `loop` and `receiver` outlive the fabric. Any thread.
Result<std::unique_ptr<NodeFabric>> makeTcpFabric(net::EpollLoop& loop, TcpListener listener,
                                                  TcpMembership membership,
                                                  const TcpOptions& options, Receiver& receiver);

TcpOptions readTcpOptions(const base::Config& config);

}  // namespace sluice::fabric
