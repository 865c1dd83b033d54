// The shell around an engine's node: it hands the calls of any thread to the node's loop, which
// alone touches the node. For engines, and for fabrics around them.
#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include <sluice/transport/fabric/fabric.h>

namespace sluice::fabric {

// One rank of an engine. It ends by close(), or by abort() when the shell goes first.
class FabricNode {
 public:
  virtual ~FabricNode() = default;

  // Any thread.
  virtual Loop& loop() const = 0;
  virtual Rank rank() const = 0;
  virtual size_t worldSize() const = 0;
  virtual Counters counters() const = 0;
  virtual bool hasEnded() const = 0;  // nothing of it runs any more

  // The rest does what Fabric's calls do, on the loop only, and may call back at once.
  virtual void send(Rank to, Lane lane, const Message& message, ConstBuffer payload, Done done) = 0;
  virtual void close(Done done) = 0;
  virtual void abort() = 0;
  virtual void resume(Rank from, Lane lane) = 0;
  virtual void giveUp(Rank peer, const Status& why) = 0;
  virtual std::optional<TimePoint> lastHeard(Rank peer) const = 0;

  // True iff send() of this would call nobody back before it returns.
  virtual bool sendsQuietly(Rank /*to*/, Lane /*lane*/, const Message& /*message*/,
                            const ConstBuffer& /*payload*/) const {
    return false;
  }
};

class NodeFabric final : public Fabric {
 public:
  explicit NodeFabric(std::shared_ptr<FabricNode> node) : node_(std::move(node)) {}
  ~NodeFabric() override;
  NodeFabric(const NodeFabric&) = delete;
  NodeFabric& operator=(const NodeFabric&) = delete;

  FabricNode& node() const { return *node_; }

  // True iff the caller may give this to node().send() itself: it is on the loop, nobody is called
  // back inside the call, and no earlier message still waits for the loop.
  bool takesAtOnce(Rank to, Lane lane, const Message& message, const ConstBuffer& payload) const {
    return node_->loop().inLoop() && *posted_ == 0 &&
           node_->sendsQuietly(to, lane, message, payload);
  }

  void send(Rank to, Lane lane, const Message& message, ConstBuffer payload, Done done) override;
  void close(Done done) override;
  void resume(Rank from, Lane lane) override;
  void giveUp(Rank peer, Status why) override;
  std::optional<TimePoint> lastHeard(Rank peer) const override { return node_->lastHeard(peer); }
  Counters counters() const override { return node_->counters(); }
  Rank rank() const override { return node_->rank(); }
  size_t worldSize() const override { return node_->worldSize(); }
  Loop& loop() const override { return node_->loop(); }

 private:
  const std::shared_ptr<FabricNode> node_;
  // Sends that wait for their turn on the loop.
  const std::shared_ptr<std::atomic<size_t>> posted_ = std::make_shared<std::atomic<size_t>>(0);
};

}  // namespace sluice::fabric
