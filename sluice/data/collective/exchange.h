// One round in which ranks send each other whole pieces of memory, each straight to its place.
// Gather, scatter, all-to-all and the like consist of such rounds. Only Communicator makes them.
// Belongs to the fabric's loop; completions of the fabric keep it alive.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include <sluice/data/collective/collective.h>
#include <sluice/transport/fabric/fabric.h>

namespace sluice::collective {

struct Parcel {
  Rank rank{};  // the receiver, or the sender
  std::span<std::byte> bytes{};
};

class Exchange final : public std::enable_shared_from_this<Exchange> {
 public:
  // Two ranks list the parcels between them in the same order, with the same sizes. `onEnd` runs
  // once. REQUIRES: no parcel to or from oneself; the memory stays until the end, after an error
  // until the fabric is gone.
  Exchange(fabric::Fabric& fabric, const Ticket& ticket, const std::vector<Parcel>& sends,
           const std::vector<Parcel>& receives, Done onEnd);

  void start();

  // Returns the length of piece `number` of those that `from` sends; empty if it sends fewer.
  static std::optional<size_t> pieceBytes(const std::vector<Parcel>& receives, Rank from,
                                          uint32_t number);

  // Returns the place for a message of this round; an error if the message is not expected.
  Result<fabric::Landing> land(Rank from, const wire::Header& header);

  std::set<Rank> missing() const;  // the ranks whose parcels are not all here

 private:
  struct Piece {
    std::span<std::byte> bytes;
    enum class State : uint8_t { kMissing, kLanding, kHere } state = State::kMissing;
  };
  using Pieces = std::map<Rank, std::vector<Piece>>;  // by the other rank, in order

  static Pieces cut(const std::vector<Parcel>& parcels);
  void oneLess(const Status& status);

  fabric::Fabric& fabric_;
  const Ticket ticket_;
  Pieces sends_;
  Pieces receives_;
  size_t left_ = 0;  // pieces to send and to receive
  Done onEnd_;       // null: it has ended
};

}  // namespace sluice::collective
