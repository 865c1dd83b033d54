#include <sluice/transport/fabric/loopback/loopback_fabric.h>

#include <vector>

#include <sluice/base/check.h>
#include <sluice/base/mutex.h>
#include <sluice/transport/fabric/loopback/node.h>

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
      // A place is free again once its node is gone, so a test may let a rank join a second
      // time.
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

LoopbackHub::LoopbackHub(size_t worldSize, Epoch epoch)
    : shared_(std::make_shared<Shared>(worldSize, epoch)) {}
LoopbackHub::~LoopbackHub() = default;

std::unique_ptr<NodeFabric> LoopbackHub::join(Rank rank, Loop& loop, Receiver& receiver,
                                              Options options) {
  SLUICE_CHECK(index(rank) < shared_->worldSize, index(rank), shared_->worldSize);
  const auto node = std::make_shared<Node>(
      rank, shared_->worldSize, shared_->epoch, loop, receiver, options.closeDeadline,
      [shared = shared_](Rank other) { return shared->find(other); });
  shared_->put(node);
  return std::make_unique<NodeFabric>(node);
}

}  // namespace sluice::fabric
