// Collectives on our own fabric: ring, halving-doubling and direct, with compression inside the
// reduction, and a lost rank named. Belongs to the fabric's loop. Its owner is the fabric's
// receiver and passes on the messages and losses that concern it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include <sluice/data/collective/collective.h>
#include <sluice/data/collective/operation.h>
#include <sluice/transport/fabric/deferred_lanes.h>
#include <sluice/transport/fabric/fabric.h>

namespace sluice::collective {

class FabricCollective final : public Collective {
 public:
  // True iff this rank will make the call, which it has not made yet.
  using WillCall = std::function<bool(const Ticket&)>;

  // REQUIRES: the fabric goes first, so that its last completions find this alive.
  explicit FabricCollective(fabric::Fabric& fabric, WillCall willCall = nullptr)
      : fabric_(fabric), willCall_(std::move(willCall)) {}

  void allReduce(const Call& call, const ReductionOptions& reduction, Done done) override;
  void reduceScatter(const Call& call, const ReductionOptions& reduction, Done done) override;
  void allGather(const Call& call, Done done) override;
  void broadcast(const Call& call, Rank root, Done done) override;
  std::string describeWait(const Ticket& ticket) const override;
  std::set<Rank> missing(const Ticket& ticket) const;  // the ranks that describeWait() names

  // As fabric::Receiver. A message for a call that this rank has not made yet waits at its sender.
  // If `willCall` says that the call will never be made, the message is refused: it would stop the
  // lane for good.
  Result<fabric::Landing> onMessage(Rank from, fabric::Lane lane, const wire::Header& header);

  void fail(const Status& why) override;  // also when a rank is lost

 private:
  void begin(const Call& call, const ReductionOptions& reduction, Schedule schedule,
             PieceLayout::Order order, Done done);
  void ended(const Ticket& ticket, const Status& status, const Done& done);
  uint32_t world() const { return static_cast<uint32_t>(fabric_.worldSize()); }

  fabric::Fabric& fabric_;
  const WillCall willCall_;  // null: this rank may make any call
  std::map<Ticket, std::shared_ptr<Operation>> underway_;
  std::set<Ticket>
      recent_;  // ended calls of the last steps: a message for one of them is a mistake
  fabric::DeferredLanes deferred_;
  Status error_;
};

}  // namespace sluice::collective
