// A fabric that does not send a rank more than that rank may keep. A message for a call that the
// receiver has not made yet has no place there, so it is kept, and what is kept has a limit
// (kEarlyBudget). The sender counts what it has sent for calls that the receiver is not known to
// have made; beyond the limit messages wait here, and the receiver is asked to tell when it has
// made the first of these calls. A message for a call that the receiver has made goes at once: it
// never waits behind those.
//
// Only bulk messages are counted; the number of their step is that of their call. Belongs to the
// loop of the fabric under it, also where the contract lets others call.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <set>
#include <vector>

#include <sluice/fabric/fabric.h>

namespace sluice::collective {

// Bytes that a rank keeps for each other rank's collectives that it has not called yet.
inline constexpr uint64_t kEarlyBudget = uint64_t{32} << 20;

// The cost of a message, with the bookkeeping that it needs: a flood of empty messages has a limit
// too.
constexpr uint64_t earlyCost(uint64_t bytes) {
  constexpr uint64_t kBookkeeping = 512;
  return bytes + kBookkeeping;
}

// Messages on the control lane, by their stage. Their step is a number of calls.
inline constexpr Stage kAsksForCall = Stage::kQueued;  // say so when you have made more than these
inline constexpr Stage kTellsCalls = Stage::kReady;    // this rank has made so many

class PacedFabric final : public fabric::Fabric {
 public:
  // REQUIRES: `under` goes first, so that its last completions find this alive.
  explicit PacedFabric(fabric::Fabric& under, uint64_t budget = kEarlyBudget)
      : under_(under), budget_(budget), peers_(under.worldSize()) {}

  void send(Rank to, fabric::Lane lane, const fabric::Message& message, fabric::ConstBuffer payload,
            fabric::Done done) override;

  // The peer is known to have made so many calls.
  void hasMade(Rank peer, uint64_t calls);
  // Nothing waits for this peer any longer: what does is sent.
  void release(Rank peer);
  // All that waits ends with `why`.
  void fail(const Status& why);
  // The ranks for which messages of this call wait.
  std::set<Rank> waitingFor(uint64_t call) const;

  void close(fabric::Done done) override { under_.close(std::move(done)); }
  void resume(Rank from, fabric::Lane lane) override { under_.resume(from, lane); }
  void giveUp(Rank peer, Status why) override { under_.giveUp(peer, std::move(why)); }
  std::optional<TimePoint> lastHeard(Rank peer) const override { return under_.lastHeard(peer); }
  fabric::Counters counters() const override { return under_.counters(); }
  Rank rank() const override { return under_.rank(); }
  size_t worldSize() const override { return under_.worldSize(); }
  Loop& loop() const override { return under_.loop(); }

 private:
  struct Waiting {
    fabric::Message message;
    fabric::ConstBuffer payload;
    fabric::Done done;
  };
  struct Peer {
    uint64_t made = 0;                  // calls that it is known to have made
    uint64_t early = 0;                 // the cost of what was sent for later ones
    std::map<uint64_t, uint64_t> sent;  // the same, by call
    std::list<Waiting> waiting;         // in the order of send()
    bool isAsked = false;
    bool isReleased = false;
  };
  bool mayGo(const Peer& peer, uint64_t call, uint64_t bytes) const;
  void pass(Rank to, Peer& peer, const Waiting& one);
  void askIfNeeded(Rank to, Peer& peer);

  fabric::Fabric& under_;
  const uint64_t budget_;
  std::vector<Peer> peers_;
};

}  // namespace sluice::collective
