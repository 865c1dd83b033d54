#include <sluice/transport/fabric/tcp/tcp_fabric.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <sluice/base/options.h>
#include <sluice/transport/fabric/tcp/tcp_node.h>
#include <sluice/transport/fabric/tcp/tls_stream.h>

namespace sluice::fabric {
namespace {

Status checkOpenSsl(Encrypt encrypt) {
  switch (encrypt) {
    case Encrypt::kAuto:
    case Encrypt::kOn: return TlsContext::check();
    case Encrypt::kIntegrity: return wire::PayloadCheck::checkTags();
    case Encrypt::kOff: return base::ok();
  }
  return base::ok();
}

}  // namespace

Result<std::unique_ptr<NodeFabric>> makeTcpFabric(net::EpollLoop& loop, TcpListener listener,
                                                  TcpMembership membership,
                                                  const TcpOptions& options, Receiver& receiver) {
  if (index(membership.rank) >= membership.addresses.size()) {
    return Status(Code::kInvalidArgument,
                  fmt::format("rank {} does not exist: there are addresses of {} ranks",
                              index(membership.rank), membership.addresses.size()));
  }
  for (const Address& address : membership.addresses) {
    // Without a job key any machine that reaches the port could change the training. The check
    // needs no network: it refuses as soon as one rank has an address that is not loopback,
    // unless the user has vouched for the network.
    if (membership.key.isSecret() || options.insecure || address.isLoopback()) continue;
    return Status(
        Code::kPermissionDenied,
        fmt::format("{} is on another host, and there is no job key; make one with: sluice key new "
                    "-o job.key, or say --insecure on where no stranger can reach the ports",
                    address.toString()));
  }
  // Failures that a user can repair become errors with a remedy here; further down a broken
  // OPENSSL_CONF would be a failed SLUICE_CHECK.
  SLUICE_RETURN_IF_ERROR(checkOpenSsl(options.encrypt));
  if (!membership.door) membership.door = door::makeDoorThread();
  SLUICE_RETURN_IF_ERROR(membership.door->status());
  auto node = std::make_shared<TcpNode>(loop, std::move(membership), options, receiver);
  // The socket is shared, since a task must be copyable.
  auto socket = std::make_shared<net::Fd>(std::move(listener).takeSocket());
  loop.post([node, socket] { node->start(std::move(*socket)); });
  return std::make_unique<NodeFabric>(std::move(node));
}

TcpOptions readTcpOptions(const base::Config& config) {
  TcpOptions options;
  const std::string& encrypt = config.text(option::kEncrypt);
  options.encrypt = encrypt == "on"          ? Encrypt::kOn
                    : encrypt == "off"       ? Encrypt::kOff
                    : encrypt == "integrity" ? Encrypt::kIntegrity
                                             : Encrypt::kAuto;
  if (config.text(option::kPayloadCheck) == "off")
    options.payloadCheck = wire::PayloadCheckKind::kNone;
  const std::string& congestionControl = config.text(option::kCongestionControl);
  if (congestionControl != "machine") options.congestionControl = congestionControl;
  options.insecure = config.isOn(option::kInsecure);
  options.shrink = static_cast<size_t>(std::max<int64_t>(config.integer(option::kShrink), 1));
  return options;
}

}  // namespace sluice::fabric
