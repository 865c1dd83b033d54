// A fabric that does not send a rank more than that rank may keep. A message for a call that the
// receiver has not made yet has no place there, so it is kept, up to a limit (kEarlyBudget). The
// sender counts the bytes that it has sent for calls that the receiver is not known to have made.
// Beyond the limit messages wait here, and the receiver is asked to tell when it has made the first
// of these calls. A message for a call that the receiver has made goes at once: it never waits
// behind the others.
//
// Only bulk messages are counted; their step is the number of their call. Every method belongs to
// the loop of the fabric under it, which is stricter than the contract of Fabric.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <set>
#include <vector>

#include <sluice/transport/fabric/fabric.h>

namespace sluice::collective {

// The limit for the bytes that a rank keeps from one other rank for collectives that it has not
// called yet.
inline constexpr uint64_t kEarlyBudget = uint64_t{32} << 20;

// The cost of a message, with the bookkeeping that it needs: a flood of empty messages has a limit
// too.
constexpr uint64_t earlyCost(uint64_t bytes) {
  constexpr uint64_t kBookkeeping = 512;
  return bytes + kBookkeeping;
}

// Messages on the control lane, by their stage. Their step is a number of calls.
inline constexpr Stage kAsksForCall = Stage::kQueued;  // tell me when you have made more than these
inline constexpr Stage kTellsCalls = Stage::kReady;    // this rank has made this many

class PacedFabric final : public fabric::Fabric {
 public:
  // REQUIRES: `under` goes first, so that its last completions find this alive.
  explicit PacedFabric(fabric::Fabric& under, uint64_t budget = kEarlyBudget)
      : under_(under), budget_(budget), peers_(under.worldSize()) {}

  void send(Rank to, fabric::Lane lane, const fabric::Message& message, fabric::ConstBuffer payload,
            fabric::Done done) override;

  // Says that the peer has made `calls` calls.
  void hasMade(Rank peer, uint64_t calls);
  // Sends everything that waits for this peer; later messages to it do not wait.
  void release(Rank peer);
  // Fails the messages that wait here. Those that the fabric has end by themselves.
  void fail(const Status& why);
  // Returns the ranks for which messages of this call wait.
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
