#include <sluice/transport/fabric/node_fabric.h>

#include <utility>

#include <sluice/transport/fabric/common.h>

namespace sluice::fabric {

NodeFabric::~NodeFabric() {
  if (!node_->hasEnded()) runBeforeFreeing(node_->loop(), [node = node_] { node->abort(); });
}

void NodeFabric::send(Rank to, Lane lane, const Message& message, ConstBuffer payload, Done done) {
  if (takesAtOnce(to, lane, message, payload))
    return node_->send(to, lane, message, payload, std::move(done));
  ++*posted_;
  node_->loop().post([node = node_, posted = posted_, to, lane, message, payload,
                      done = std::move(done)]() mutable {
    --*posted;
    node->send(to, lane, message, payload, std::move(done));
  });
}

void NodeFabric::close(Done done) {
  node_->loop().post(
      [node = node_, done = std::move(done)]() mutable { node->close(std::move(done)); });
}

void NodeFabric::resume(Rank from, Lane lane) {
  node_->loop().post([node = node_, from, lane] { node->resume(from, lane); });
}

void NodeFabric::giveUp(Rank peer, Status why) {
  node_->loop().post([node = node_, peer, why = std::move(why)] { node->giveUp(peer, why); });
}

}  // namespace sluice::fabric
