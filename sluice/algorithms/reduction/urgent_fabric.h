// A fabric on which bulk messages wait in order of urgency, as credit allows: for what sends to a
// fabric directly and knows nothing of queues. The number of a message's tensor is its priority,
// lower first; earlier steps go before later ones.
//
// Loop thread only, stricter than the Fabric contract. Does not own the inner fabric; drain this
// before closing it.
#pragma once

#include <unordered_map>

#include <sluice/transport/fabric/fabric.h>
#include <sluice/transport/queue/egress.h>

namespace sluice::algorithms {

class UrgentFabric final : public fabric::Fabric {
 public:
  // REQUIRES: `under` goes first, so that its last completions find this alive.
  UrgentFabric(fabric::Fabric& under, uint64_t window);

  void send(Rank to, fabric::Lane lane, const fabric::Message& message, fabric::ConstBuffer payload,
            fabric::Done done) override;
  void close(fabric::Done done) override { under_.close(std::move(done)); }
  void resume(Rank from, fabric::Lane lane) override { under_.resume(from, lane); }
  void giveUp(Rank peer, Status why) override { under_.giveUp(peer, std::move(why)); }
  std::optional<TimePoint> lastHeard(Rank peer) const override { return under_.lastHeard(peer); }
  fabric::Counters counters() const override { return under_.counters(); }
  Rank rank() const override { return under_.rank(); }
  size_t worldSize() const override { return under_.worldSize(); }
  Loop& loop() const override { return under_.loop(); }

  const queue::Egress& egress() const { return egress_; }
  uint64_t bytesWaiting() const { return bytesWaiting_; }

 private:
  struct Waiting {
    fabric::Message message;
    fabric::ConstBuffer payload;
    fabric::Done done;
  };
  void handOver();
  void drop(Rank to, const Status& why);

  fabric::Fabric& under_;
  queue::Egress egress_;
  std::unordered_map<uint64_t, Waiting> waiting_;  // by the tag of its Send
  uint64_t nextTag_ = 0;
  uint64_t bytesWaiting_ = 0;
};

}  // namespace sluice::algorithms
