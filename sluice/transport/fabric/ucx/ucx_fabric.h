// The fabric over UCX: for RDMA, shared memory and, later, GPU memory; over TCP where there is
// nothing better. It starts only on a network that the user has called trusted, because UCX's own
// port believes anybody who reaches it (docs/fabric.md). Nothing of UCX shows in here.
//
//   auto port = UcxPort::open(options, loop);         // any thread
//   store.set(rank, port->address());                 // the others need it
//   auto fabric = port->start(receiver, findAddress); // from now on messages are taken
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <sluice/base/config.h>
#include <sluice/base/net/epoll_loop.h>
#include <sluice/secret/job_key.h>
#include <sluice/transport/fabric/fabric.h>
#include <sluice/transport/fabric/node_fabric.h>

namespace sluice::fabric {

struct UcxOptions {
  Rank rank{};
  size_t worldSize = 1;
  Epoch epoch{};
  secret::JobKey jobKey = secret::JobKey::none();
  bool isNetworkTrusted = false;   // REQUIRED to be said
  std::string transports = "tcp";  // as for UCX_TLS: "tcp", "rc,ud,tcp", "sm,tcp"
  std::string device;              // as for UCX_NET_DEVICES: "lo", "mlx5_0:1"; empty: UCX chooses

  bool checksPayloads = true;  // a CRC32C travels with every payload; all ranks must agree

  // Bytes of one lane that may be under way to one rank. With too many, urgent messages wait behind
  // them; with too few, a fast link waits for acknowledgements. docs/fabric.md has the
  // measurements.
  size_t windowBytes = size_t{768} << 10;
  // Longer payloads are fetched straight into the landing (rendezvous); up to this they travel with
  // their header and are copied once (eager), which is faster over TCP.
  size_t eagerBytes = (size_t{256} << 10) - 1024;
  Duration closeDeadline = std::chrono::seconds(2);  // while we close and no rank takes anything
};

// The options that the configuration sets: trusted-network, ucx-transports, payload-check.
UcxOptions ucxOptions(const base::Config& config);

// The address by which another rank reaches this one. Opaque, some hundred bytes.
using UcxAddress = std::vector<std::byte>;
// Finds the address of a rank. Called on the loop when the rank is first spoken to or heard from.
using FindUcxAddress = std::function<Result<UcxAddress>(Rank)>;

namespace ucx {
class Node;
}

// An open port that does not take messages yet. Any thread; its loop must run until it has gone.
class UcxPort final {
 public:
  static Result<std::unique_ptr<UcxPort>> open(const UcxOptions& options, net::EpollLoop& loop);
  ~UcxPort();
  UcxPort(const UcxPort&) = delete;
  UcxPort& operator=(const UcxPort&) = delete;

  const UcxAddress& address() const { return address_; }

  // REQUIRES: called once; `receiver` outlives the fabric.
  std::unique_ptr<NodeFabric> start(Receiver& receiver, FindUcxAddress findAddress);

 private:
  UcxPort(std::shared_ptr<ucx::Node> node, UcxAddress address);

  std::shared_ptr<ucx::Node> node_;  // null once started
  UcxAddress address_;
};

}  // namespace sluice::fabric
