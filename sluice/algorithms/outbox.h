// The way from a strategy to the fabric: slices wait in order of urgency (queue/) and are handed
// over as credit allows. Belongs to the fabric's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>

#include <sluice/algorithms/context.h>
#include <sluice/algorithms/strategy.h>
#include <sluice/data/plan/plan.h>
#include <sluice/transport/fabric/fabric.h>
#include <sluice/transport/queue/egress.h>

namespace sluice::algorithms {

// Returns the user's credit, in bytes.
uint64_t creditOf(const base::Config& config);

// Orders by urgency, with the user's credit per destination.
queue::EgressOptions byUrgency(const base::Config& config);

// The most urgent first, with the user's credit for all destinations together, and less of it for
// one of many (with BBR, all of it for each). For algorithms whose ranks wait for each other: bytes
// that are early at one destination help nobody while more urgent ones wait for a slower
// connection.
queue::EgressOptions byUrgencyOverAll(const base::Config& config, size_t destinations);

class Outbox final {
 public:
  using AtLast = std::function<void(fabric::ConstBuffer& payload, wire::Flags& flags)>;
  // A slice on its way to one rank. The payload stays alive and unchanged until the receiver has
  // it.
  struct Parcel {
    const plan::Slice& slice;
    Stage stage;  // kPush or kPublish
    Step step;
    Rank to;
    uint64_t turn;
    fabric::ConstBuffer payload;
    DType dtype;
    wire::Flags flags = wire::Flags::kNone;  // of the sender's own bits
    fabric::Done done{};  // the payload is the caller's again; without one, the gates hear
    // Called when the slice is handed to the network, if given: for a payload that is better the
    // later it is made. Until then only its size counts.
    AtLast atLast{};
    std::shared_ptr<const void> owner{};  // keeps the payload alive until it is the caller's again
  };
  // A send that failed and has no `done` of its own fails the gates.
  Outbox(const Context& context, const queue::EgressOptions& options);

  void post(const Parcel& parcel);

  Statistics statistics() const {
    return {bytesWaiting_, egress_.credit().inFlight(), egress_.inversion()};
  }

 private:
  struct Packed {
    fabric::Message message;
    fabric::ConstBuffer payload;
    fabric::Done done;
    AtLast atLast;
    std::shared_ptr<const void> owner;
  };
  void handOver();

  fabric::Fabric& fabric_;
  gate::Gates& gates_;
  const plan::Stages stages_;
  queue::Egress egress_;
  std::unordered_map<uint64_t, Packed> waiting_;  // by the tag of its Send
  uint64_t nextTag_ = 0;
  uint64_t bytesWaiting_ = 0;
};

}  // namespace sluice::algorithms
