// Messages from one rank to another with a tag, as send and receive of torch.distributed and MPI
// know them. A message that comes before anybody asked for it is kept, so that a message that is
// asked for first can pass it. Beyond a limit for each sender, messages wait at the sender. Only
// Communicator makes a Mailbox. Belongs to the fabric's loop.
//
// A Mailbox has the urgent lane to itself: a message that has to wait must not stop collectives.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <sluice/transport/fabric/deferred_lanes.h>
#include <sluice/transport/fabric/fabric.h>

namespace sluice::collective {

inline constexpr fabric::Lane kMailLane = fabric::Lane::kUrgent;

// The limit for the bytes that a rank keeps of messages from one other rank before it asks for
// them.
inline constexpr uint64_t kMailBudget = uint64_t{32} << 20;

class Mailbox final {
 public:
  using Received = std::function<void(const Status&, Rank from)>;

  explicit Mailbox(fabric::Fabric& fabric) : fabric_(fabric) {}

  // `done` runs when the bytes are the caller's again, which does not say that they have been
  // received.
  void send(Rank to, uint32_t tag, std::span<std::byte> bytes, fabric::Done done);

  // Receives the next message with this tag, from any rank if `from` is empty. The message must
  // have as many bytes as `bytes`.
  void receive(std::optional<Rank> from, uint32_t tag, std::span<std::byte> bytes, Received done);

  Result<fabric::Landing> onMessage(Rank from, const wire::Header& header);

  uint64_t keptFrom(Rank peer) const {
    const auto found = keptBytes_.find(peer);
    return found == keptBytes_.end() ? 0 : found->second;
  }

 private:
  // A call of receive(). A long message comes in pieces, all from the rank that the first came
  // from.
  struct Wanted {
    std::optional<Rank> from;
    uint32_t tag;
    std::span<std::byte> bytes;
    Received done;  // null: the call has ended
    size_t toCome;  // pieces that nobody has seen yet
    size_t toLand;  // pieces that are not here
    size_t claimed = 0;
  };
  // A message that nobody had asked for when it came.
  struct Letter {
    Rank from;
    uint32_t tag;
    std::vector<std::byte> bytes;
    bool isHere = false;
    // The receive that claimed this letter after it arrived; null while unclaimed.
    std::shared_ptr<Wanted> wanted;
    std::span<std::byte> place;
  };

  std::optional<std::span<std::byte>> claim(const std::shared_ptr<Wanted>& wanted, Rank from,
                                            size_t bytes);
  static void landed(Wanted& wanted);
  void take(Letter& letter);

  fabric::Fabric& fabric_;
  std::list<std::shared_ptr<Wanted>>
      wanted_;  // calls whose pieces have not all been seen, in their order
  std::list<std::shared_ptr<Letter>> kept_;  // not asked for yet, in the order of arrival
  std::map<Rank, uint64_t> keptBytes_;       // by sender, with the bookkeeping
  fabric::DeferredLanes deferred_;
};

}  // namespace sluice::collective
