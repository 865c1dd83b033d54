#include <sluice/fabric/tcp/tcp_fabric.h>

#include <utility>

#include <fmt/format.h>

#include <sluice/base/check.h>
#include <sluice/base/options.h>
#include <sluice/fabric/common.h>
#include <sluice/fabric/tcp/tcp_node.h>

namespace sluice::fabric {
namespace {

class TcpFabric final : public Fabric {
 public:
  explicit TcpFabric(std::shared_ptr<TcpNode> node) : node_(std::move(node)) {}
  ~TcpFabric() override {
    if (!node_->hasEnded()) runAndWait(node_->loop(), [node = node_] { node->abort(); });
  }
  TcpFabric(const TcpFabric&) = delete;
  TcpFabric& operator=(const TcpFabric&) = delete;

  void send(Rank to, Lane lane, const Message& message, ConstBuffer payload, Done done) override {
    node_->loop().post([node = node_, to, lane, message, payload, done = std::move(done)]() mutable {
      node->send(to, lane, message, payload, std::move(done));
    });
  }
  void close(Done done) override {
    node_->loop().post([node = node_, done = std::move(done)]() mutable { node->close(std::move(done)); });
  }
  void resume(Rank from, Lane lane) override {
    node_->loop().post([node = node_, from, lane] { node->resume(from, lane); });
  }
  void giveUp(Rank peer, Status why) override {
    node_->loop().post([node = node_, peer, why = std::move(why)] { node->giveUp(peer, why); });
  }
  std::optional<TimePoint> lastHeard(Rank peer) const override { return node_->lastHeard(peer); }
  Counters counters() const override { return node_->counters(); }
  Rank rank() const override { return node_->rank(); }
  size_t worldSize() const override { return node_->worldSize(); }
  Loop& loop() const override { return node_->loop(); }

 private:
  const std::shared_ptr<TcpNode> node_;
};

}  // namespace

Result<std::unique_ptr<Fabric>> makeTcpFabric(base::EpollLoop& loop, TcpListener listener,
                                              TcpMembership membership, const TcpOptions& options,
                                              Receiver& receiver) {
  if (index(membership.rank) >= membership.addresses.size()) {
    return Status(Code::kInvalidArgument, fmt::format("rank {} has no place among {} addresses",
                                                      index(membership.rank), membership.addresses.size()));
  }
  for (const Address& address : membership.addresses) {
    if (membership.key.isSecret() || options.insecure || address.isLoopback()) continue;
    return Status(
        Code::kPermissionDenied,
        fmt::format("{} is on another host and there is no job key: make one with `sluice key new`, or say "
                    "--insecure where no stranger can reach the ports",
                    address.toString()));
  }
  auto node = std::make_shared<TcpNode>(loop, std::move(membership), options, receiver);
  // Shared, since a task must be copyable.
  auto socket = std::make_shared<base::Fd>(std::move(listener).takeSocket());
  loop.post([node, socket] { node->start(std::move(*socket)); });
  return std::unique_ptr<Fabric>(std::make_unique<TcpFabric>(std::move(node)));
}

TcpOptions readTcpOptions(const Config& config) {
  TcpOptions options;
  const std::string& encrypt = config.text(option::kEncrypt);
  options.encrypt = encrypt == "on" ? Encrypt::kOn : encrypt == "off" ? Encrypt::kOff : Encrypt::kAuto;
  options.insecure = config.isOn(option::kInsecure);
  return options;
}

}  // namespace sluice::fabric
