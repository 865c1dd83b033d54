// One collective under way at one rank: plays its schedule, strip by strip. Only FabricCollective
// makes an Operation. Belongs to the fabric's loop; completions of the fabric keep it alive.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <sluice/data/collective/collective.h>
#include <sluice/data/collective/layout.h>
#include <sluice/data/collective/schedule.h>
#include <sluice/transport/fabric/fabric.h>

namespace sluice::collective {

class Operation final : public std::enable_shared_from_this<Operation> {
 public:
  // `onEnd` runs once, with an error if a send or a landing failed.
  Operation(fabric::Fabric& fabric, const Call& call, const ReductionOptions& reduction,
            Schedule schedule, PieceLayout layout, Done onEnd);

  void start();

  // Returns the place for a message of this call; an error if the message is not expected.
  Result<fabric::Landing> land(Rank from, const wire::Header& header);

  // Ends the operation now. Later messages of other ranks are taken, and not used.
  void end(const Status& status);

  std::set<Rank> missing() const;  // ranks whose messages the strips' current rounds wait for
  std::string describeWait() const;

 private:
  using Bytes = std::vector<std::byte>;
  // A message that this rank is to receive, in one strip.
  struct Receipt {
    enum class State : uint8_t { kMissing, kLanding, kHere } state = State::kMissing;
    std::shared_ptr<Bytes> bytes;  // null: they land in the data itself
  };
  struct Strip {
    size_t round = 0;
    std::vector<std::vector<Receipt>> receipts;  // by round, as in the schedule
  };
  struct Place {
    size_t round;
    size_t index;
  };

  void enter(uint32_t strip);
  void advance(uint32_t strip);
  void send(uint32_t strip, const OutgoingParts& outgoing, uint32_t ordinal, bool isResult,
            std::shared_ptr<Bytes>& encoded);
  void use(uint32_t strip, const ScheduleRound& round, const std::vector<Receipt>& receipts);
  void sum(const ElementRange& range, const ScheduleRound& round,
           const std::vector<Receipt>& receipts);
  void endIfDone();

  std::span<std::byte> dataOf(const ElementRange& range) const;
  size_t wireBytes(const ElementRange& range) const;
  SliceId idOf(uint32_t strip, uint32_t ordinal) const {
    return SliceId{strip * ordinals_ + ordinal};
  }

  fabric::Fabric& fabric_;
  const Call call_;
  const ReductionOptions reduction_;
  const Schedule schedule_;
  const PieceLayout layout_;
  const uint32_t
      ordinals_;  // at least the messages between any two ranks in one strip; the same on all
  Done onEnd_;    // null: the operation has ended

  // A message is known by its number among those between two ranks: the other rank may number its
  // rounds differently.
  std::vector<std::vector<uint32_t>> sendOrdinals_;     // by round, as in the schedule
  std::map<std::pair<Rank, uint32_t>, Place> placeOf_;  // by sender and number
  std::vector<Strip> strips_;
  uint32_t stripsBegun_ = 0;
  size_t stripsLeft_;
  size_t sendsLeft_ = 0;
  Bytes sum_;  // scratch
};

}  // namespace sluice::collective
