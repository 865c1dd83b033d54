// A process group on a fabric of its own: collectives, known by the order in which every rank calls
// them, and messages with tags. Made from any thread; the calls belong to the fabric's loop.
//
// No call depends on the order in which ranks get to theirs: a message for a call that has not been
// made here yet is kept, so it stops no other message. The kept bytes have a limit for each sender;
// beyond it messages wait at the sender (paced_fabric.h, mailbox.h), so that fast ranks do not fill
// up a slow one.
//
// The first error ends every call, now and later. Every call ends within its time, and its error
// names the missing ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include <sluice/data/collective/exchange.h>
#include <sluice/data/collective/fabric_collective.h>
#include <sluice/data/collective/mailbox.h>
#include <sluice/data/collective/paced_fabric.h>
#include <sluice/transport/fabric/deferred_lanes.h>
#include <sluice/transport/fabric/fabric.h>

namespace sluice::collective {

// Every message carries the number of its kind, so that a rank that makes another call than the
// others is told.
enum class CallKind : uint8_t {
  kAllReduce,
  kBroadcast,
  kReduce,
  kGather,
  kScatter,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kBarrier,
  kSend,
  kReceive,
};
std::string_view name(CallKind kind);

// The arguments of every call.
struct CallTerms {
  Duration atMost{};
  std::shared_ptr<const void> memory{};  // keeps alive what the call's spans point at
  Done done{};                           // on the loop, exactly once
};

// One round of a collective: parcels to send, parcels to receive, and a function that runs on the
// loop when the received ones are here. The next round may send its result.
struct Leg {
  std::vector<Parcel> sends{};
  std::vector<Parcel> receives{};
  std::function<void()> then{};
};
inline constexpr size_t kMostLegs = 8;

class Communicator final : public fabric::Receiver {
 public:
  // Makes the fabric, given its receiver.
  using MakeFabric = std::function<Result<std::unique_ptr<fabric::Fabric>>(fabric::Receiver&)>;
  static Result<std::unique_ptr<Communicator>> start(const MakeFabric& makeFabric,
                                                     uint64_t earlyBudget = kEarlyBudget);

  // Waits until all messages of this rank are on their way, then says goodbye. On the loop's own
  // thread the destructor cannot wait, and says no goodbye; REQUIRES on that thread: fail() was
  // called, and everything that was sent before has reached the fabric.
  ~Communicator() override;

  void allReduce(std::span<std::byte> data, DType dtype, Method method, CallTerms terms);
  void broadcast(std::span<std::byte> data, Rank root, CallTerms terms);
  void barrier(CallTerms terms);

  // Runs any other collective. REQUIRES: at most kMostLegs; no parcel to or from oneself
  void exchange(CallKind kind, std::vector<Leg> legs, CallTerms terms);

  void send(Rank to, uint32_t tag, std::span<std::byte> bytes, CallTerms terms);
  // `onSource` gets the rank of the sender, before `done` runs.
  void receive(std::optional<Rank> from, uint32_t tag, std::span<std::byte> bytes,
               std::function<void(Rank)> onSource, CallTerms terms);

  // Ends everything under way with `why`, and every later call too.
  void fail(const Status& why);

  // Returns the bytes kept for calls that have not been made here, with their bookkeeping. Loop
  // only.
  uint64_t keptFrom(Rank peer) const;

  Loop& loop() const { return *loop_; }
  Rank rank() const { return fabric_->rank(); }
  uint32_t worldSize() const { return static_cast<uint32_t>(fabric_->worldSize()); }

  Result<fabric::Landing> onMessage(Rank from, fabric::Lane lane,
                                    const wire::Header& header) override;
  void onPeerLost(Rank from, const Status& why) override;
  void onPeerLeft(Rank from) override;

 private:
  // Collectives are numbered alike on all ranks, messages are not.
  struct CallId {
    bool isCollective;
    uint64_t number;
    friend auto operator<=>(const CallId&, const CallId&) = default;
  };
  struct Underway {
    CallKind kind;
    CallTerms terms;
    TimerId timer;
    std::vector<Leg> legs{};                    // of an exchange
    std::function<std::set<Rank>()> missing{};  // the ranks that the call waits for
  };
  struct Early {
    Rank from;
    wire::Header header;
    std::vector<std::byte> bytes;
    // Bytes charged to the early-message budget; 0 if the call was already open on arrival.
    uint64_t cost = 0;
    bool isHere = false;
  };

  explicit Communicator(uint64_t earlyBudget) : earlyBudget_(earlyBudget) {}
  Underway* begin(const CallId& id, CallKind kind, CallTerms terms);
  void finish(const CallId& id, const Status& status);
  void runLeg(const CallId& id, size_t leg);
  void openFor(const Ticket& ticket);
  Result<fabric::Landing> deliver(Rank from, const wire::Header& header);
  Result<fabric::Landing> landOnControl(Rank from, const wire::Header& header);
  Result<fabric::Landing> keep(Rank from, fabric::Lane lane, const wire::Header& header);
  Status refuse(const Status& why);
  Status expectLeg(const Underway& call, Rank from, const wire::Header& header) const;
  void forgetEarly(const Early& early);
  void tellCalls(Rank to);
  void handOver(const Ticket& ticket);
  void timeIsUp(const CallId& id);
  void lookForLeavers();
  static std::string describe(const CallId& id, const Underway& call);

  // Declared before the fabric, so that they go after it: its last completions find them alive.
  std::unique_ptr<PacedFabric> paced_;
  std::unique_ptr<FabricCollective> collective_;
  std::unique_ptr<Mailbox> mailbox_;
  std::map<Ticket, std::shared_ptr<Exchange>> exchanges_;  // under way
  std::set<Ticket> open_;                                  // calls whose messages have a place here
  std::map<Ticket, std::vector<std::shared_ptr<Early>>> early_;
  std::map<Rank, uint64_t>
      earlyBytes_;                 // the cost by sender, for calls that have not been made here
  std::map<Rank, uint64_t> asks_;  // ranks to tell once more calls than this have been made
  std::map<CallId, Underway> underway_;
  std::vector<std::shared_ptr<const void>>
      kept_;  // memory of calls that failed: bytes may still come for it
  const uint64_t earlyBudget_;
  uint64_t nextCollective_ = 0;
  uint64_t nextMessage_ = 0;
  std::vector<Rank> left_;  // in the order of leaving: the first may be why the others left
  std::optional<TimerId> leaverTimer_;
  // Lanes that wait: a message came before it could be taken, or before there was room.
  fabric::DeferredLanes deferred_;
  Status error_;
  bool isEnding_ = false;
  Loop* loop_ = nullptr;  // the fabric's; null before the first call can be made
  std::unique_ptr<fabric::Fabric> fabric_;
};

}  // namespace sluice::collective
