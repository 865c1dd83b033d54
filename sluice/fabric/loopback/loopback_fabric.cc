#include <sluice/fabric/loopback/loopback_fabric.h>

#include <utility>
#include <vector>

#include <sluice/base/check.h>
#include <sluice/base/mutex.h>
#include <sluice/fabric/common.h>
#include <sluice/fabric/loopback/node.h>

namespace sluice::fabric {

class LoopbackHub::Shared final {
 public:
  Shared(size_t size, Epoch membership) : worldSize(size), epoch(membership), nodes_(Nodes(size)) {}

  std::shared_ptr<Node> find(Rank rank) const {
    return nodes_.with([&](const Nodes& nodes) { return nodes[index(rank)].lock(); });
  }
  void put(const std::shared_ptr<Node>& node) {
    const bool isFree = nodes_.with([&](Nodes& nodes) {
      auto& place = nodes[index(node->rank())];
      if (!place.expired()) return false;
      place = node;
      return true;
    });
    SLUICE_CHECK(isFree, index(node->rank()));
  }

  const size_t worldSize;
  const Epoch epoch;

 private:
  using Nodes = std::vector<std::weak_ptr<Node>>;
  base::Guarded<Nodes> nodes_;
};

namespace {

class LoopbackFabric final : public Fabric {
 public:
  explicit LoopbackFabric(std::shared_ptr<Node> node) : node_(std::move(node)) {}
  ~LoopbackFabric() override {
    if (!node_->hasEnded()) runAndWait(node_->loop(), [node = node_] { node->abort(); });
  }
  LoopbackFabric(const LoopbackFabric&) = delete;
  LoopbackFabric& operator=(const LoopbackFabric&) = delete;

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
  const std::shared_ptr<Node> node_;
};

}  // namespace

LoopbackHub::LoopbackHub(size_t worldSize, Epoch epoch)
    : shared_(std::make_shared<Shared>(worldSize, epoch)) {}
LoopbackHub::~LoopbackHub() = default;

std::unique_ptr<Fabric> LoopbackHub::join(Rank rank, Loop& loop, Receiver& receiver, Options options) {
  SLUICE_CHECK(index(rank) < shared_->worldSize, index(rank), shared_->worldSize);
  const auto node =
      std::make_shared<Node>(rank, shared_->worldSize, shared_->epoch, loop, receiver, options.closeDeadline,
                             [shared = shared_](Rank other) { return shared->find(other); });
  shared_->put(node);
  return std::make_unique<LoopbackFabric>(node);
}

}  // namespace sluice::fabric
