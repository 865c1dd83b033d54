// The connection that carries what this rank sends to one rank on one lane. Made with the first
// message; a FIFO of sealed headers and payloads, written straight from the callers' buffers. In
// the other direction come only two sealed headers: a welcome, before which nothing is sent, and a
// goodbye. Loop thread only.
#pragma once

#include <deque>
#include <memory>
#include <optional>

#include <sluice/base/mutex.h>
#include <sluice/base/net/address.h>
#include <sluice/base/net/epoll_loop.h>
#include <sluice/transport/fabric/fabric.h>
#include <sluice/transport/fabric/tcp/claim.h>
#include <sluice/transport/fabric/tcp/stream.h>
#include <sluice/transport/fabric/tcp/stream_maker.h>
#include <sluice/transport/fabric/tcp/tcp_options.h>

namespace sluice::fabric {

class Outgoing final : public std::enable_shared_from_this<Outgoing> {
 public:
  // Events that the owner is told. Each may end this connection, so it is the last thing a method
  // does.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void outgoingHeard(Rank peer) = 0;                    // the other end lives
    virtual void outgoingDrained(Rank peer, Lane lane) = 0;       // nothing is queued any more
    virtual void outgoingLost(Rank peer, const Status& why) = 0;  // broken, or never came about
    virtual void outgoingGoodbye(Rank peer) = 0;                  // the other end has left
    virtual void outgoingEnded(Rank peer, Lane lane) = 0;         // our goodbye was read to its end
  };

  Outgoing(net::EpollLoop& loop, const StreamClaim& claim, Address address,
           const StreamMaker& maker, const TcpOptions& options, base::Guarded<Counters>& counters,
           Owner& owner);
  ~Outgoing();
  Outgoing(const Outgoing&) = delete;
  Outgoing& operator=(const Outgoing&) = delete;

  void connect();
  void push(const Message& message, ConstBuffer payload, Done done);
  void sayGoodbye();

  // Ends it and everything queued, with a reset if `atOnce`. The owner is not told.
  void end(const Status& why, bool atOnce);

  bool hasQueued() const { return !queue_.empty() || (stream_ && stream_->hasUnflushed()); }

  // While held it writes nothing, because a more urgent lane goes first.
  void hold(bool isHeld);
  // True iff it has something to write and the network took some of it lately.
  bool isMoving() const;
  // Returns the time when the network last took some of it, or when bytes were queued on an idle
  // connection.
  TimePoint lastProgress() const { return lastProgress_; }

 private:
  enum class State { kResting, kConnecting, kProving, kAwaitingWelcome, kOpen, kEnded };
  struct Item {
    wire::Header header;
    ConstBuffer payload;
    Done done;
    wire::HeaderBytes sealed{};
    wire::PayloadCheck::Trailer trailer{};
    size_t checked = 0;  // of the payload; the trailer is there when it is all
    bool isSealed = false;
  };

  void onEvents(uint32_t events);
  void finishConnect();
  void prove();
  void readReverse();
  void writeSome();
  size_t gather(std::span<iovec> pieces);
  void check(Item& item, size_t upTo);
  void advance(size_t bytes);
  void scheduleWrite();
  void retryOrFail(const Status& why);
  void closeStream(bool atOnce);
  void watchFor(uint32_t events);
  void watchForWhatIsLeft();

  net::EpollLoop& loop_;
  const StreamClaim claim_;
  const Address address_;
  const StreamMaker& maker_;
  const TcpOptions options_;
  base::Guarded<Counters>& counters_;
  Owner& owner_;

  State state_ = State::kResting;
  net::Fd connecting_;
  std::unique_ptr<Stream> stream_;
  uint32_t watched_ = 0;
  bool isWatching_ = false;

  int attempts_ = 0;
  TimePoint giveUpAt_{};
  std::optional<TimerId> timer_;  // the next attempt, or the end of this one

  secret::SessionKeys keys_;
  wire::PayloadCheck check_;
  std::deque<Item> queue_;
  size_t written_ = 0;  // of the first item, header and payload
  uint64_t nextSequence_ = 0;
  bool isWriteScheduled_ = false;
  bool isCompleting_ = false;  // writeSome() goes on with what is pushed meanwhile
  bool isHeld_ = false;
  bool saidGoodbye_ = false;
  bool endedWrites_ = false;
  TimePoint lastProgress_{};

  wire::HeaderBytes reverse_{};
  size_t reverseBytes_ = 0;
  uint64_t reverseSequence_ = 0;
};

}  // namespace sluice::fabric
