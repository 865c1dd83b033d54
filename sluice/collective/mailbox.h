// Messages from one rank to another with a tag, as send and receive of torch.distributed and MPI
// know them. A message that comes before anybody asked for it is kept, so that what is asked for
// first can pass it; beyond a limit for each sender it waits there. Only Communicator makes one.
// Belongs to the fabric's loop.
//
// It has the urgent lane to itself: a message that has to wait must not stop collectives.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include <sluice/fabric/fabric.h>

namespace sluice::collective {

inline constexpr fabric::Lane kMailLane = fabric::Lane::kUrgent;

// Bytes that a rank keeps of each other rank's messages that it has not asked for.
inline constexpr uint64_t kMailBudget = uint64_t{32} << 20;

class Mailbox final {
 public:
  using Received = std::function<void(const Status&, Rank from)>;

  explicit Mailbox(fabric::Fabric& fabric) : fabric_(fabric) {}

  // `done` runs when the bytes are the caller's again, which does not say that they have been
  // received.
  void send(Rank to, uint32_t tag, std::span<std::byte> bytes, fabric::Done done);

  // The next message with this tag, from anybody if `from` is empty. It must have as many bytes.
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
    Received done;  // null: it has ended
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
    std::shared_ptr<Wanted> wanted;  // who asked for it since
    std::span<std::byte> place;
  };

  std::optional<std::span<std::byte>> claim(const std::shared_ptr<Wanted>& wanted, Rank from,
                                            size_t bytes);
  static void landed(Wanted& wanted);
  void take(Letter& letter);

  fabric::Fabric& fabric_;
  std::list<std::shared_ptr<Wanted>>
      wanted_;  // whose pieces have not all been seen, in the order of calls
  std::list<std::shared_ptr<Letter>> kept_;  // that nobody has asked for, in the order of arrival
  std::map<Rank, uint64_t> keptBytes_;       // by sender, with the bookkeeping
  std::set<Rank> heldBack_;
};

}  // namespace sluice::collective
