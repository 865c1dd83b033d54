// The shell around an engine's node: it hands the calls of any thread to the node's loop, which
// alone touches the node. For engines only. A Node has the methods used below; it ends by close(),
// or by abort() when the shell goes first.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include <sluice/transport/fabric/common.h>
#include <sluice/transport/fabric/fabric.h>

namespace sluice::fabric {

template <typename Node>
class NodeFabric final : public Fabric {
 public:
  explicit NodeFabric(std::shared_ptr<Node> node) : node_(std::move(node)) {}
  ~NodeFabric() override {
    if (!node_->hasEnded()) runBeforeFreeing(node_->loop(), [node = node_] { node->abort(); });
  }
  NodeFabric(const NodeFabric&) = delete;
  NodeFabric& operator=(const NodeFabric&) = delete;

  void send(Rank to, Lane lane, const Message& message, ConstBuffer payload, Done done) override {
    node_->loop().post(
        [node = node_, to, lane, message, payload, done = std::move(done)]() mutable {
          node->send(to, lane, message, payload, std::move(done));
        });
  }
  void close(Done done) override {
    node_->loop().post(
        [node = node_, done = std::move(done)]() mutable { node->close(std::move(done)); });
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

}  // namespace sluice::fabric
