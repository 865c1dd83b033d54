// The connection that carries what one rank sends to us on one lane. Headers are opened and checked
// one after another; payloads are read straight into the receiver's buffers. Loop thread only.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <sluice/base/mutex.h>
#include <sluice/base/net/epoll_loop.h>
#include <sluice/transport/fabric/fabric.h>
#include <sluice/transport/fabric/tcp/claim.h>
#include <sluice/transport/fabric/tcp/read_ahead.h>
#include <sluice/transport/fabric/tcp/stream.h>

namespace sluice::fabric {

class Incoming final : public std::enable_shared_from_this<Incoming> {
 public:
  // Events that the owner is told. Each may end this connection, so it is the last thing a method
  // does.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void incomingHeard(Rank peer) = 0;
    virtual void incomingGoodbye(Rank peer, Lane lane) = 0;  // the last message of this lane is in
    virtual void incomingEnded(Rank peer, Lane lane) = 0;    // closed in good order
    virtual void incomingLost(Rank peer, const Status& why) = 0;
  };

  // REQUIRES: the stream's handshake is done and its claim is `claim`.
  Incoming(net::EpollLoop& loop, std::unique_ptr<Stream> stream, const StreamClaim& claim,
           Receiver& receiver, base::Guarded<Counters>& counters, Owner& owner);
  ~Incoming();
  Incoming(const Incoming&) = delete;
  Incoming& operator=(const Incoming&) = delete;

  void start();  // welcomes the other end

  // The stream is ready: called by the loop, or by a caller that has no running loop.
  void onEvents(uint32_t events);

  void resume();

  // Says that we take nothing more: a landing that is not whole ends with `why`, and what still
  // comes is read and thrown away until the other end closes.
  void sayGoodbye(const Status& why);

  // Ends it, and a landing that is not whole, with a reset if `atOnce`. The owner is not told.
  void end(const Status& why, bool atOnce);

 private:
  enum class State { kReading, kWaiting, kDiscarding, kEnded };

  void readSome();
  bool readOnce(size_t& budget);  // false: stop for now
  bool takeHeaders();
  void lose(const Status& why);
  void skip(uint64_t length);
  void landed(size_t bytes);
  bool takeTrailer();
  bool takeMessage(const wire::Header& header);
  void finishPayload();
  void fallSilent(const Io& io);
  void sendReverse(const wire::Header& header);
  bool flushReverse();
  void watchForWhatIsLeft();

  net::EpollLoop& loop_;
  std::unique_ptr<Stream> stream_;
  const StreamClaim claim_;
  Receiver& receiver_;
  base::Guarded<Counters>& counters_;
  Owner& owner_;
  const secret::SessionKeys keys_;

  State state_ = State::kReading;
  bool heardGoodbye_ = false;
  bool isReadScheduled_ = false;
  uint64_t nextSequence_ = 0;
  std::optional<wire::Header> asked_;  // the header the receiver has put off

  // The payload being read, with its trailer; without a landing both are read past.
  std::optional<Landing> landing_;
  wire::Header landingHeader_;
  uint64_t payloadLeft_ = 0;
  size_t trailerLeft_ = 0;
  wire::PayloadCheck check_;

  ReadAhead ahead_;  // small things are read many at a time
  bool expectsLarge_ = false;

  std::vector<std::byte> reverse_;  // sealed headers for the other end that are not sent yet
  uint64_t reverseSequence_ = 0;
  uint32_t watched_ = 0;
  bool isWatching_ = false;
};

}  // namespace sluice::fabric
