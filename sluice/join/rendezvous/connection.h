// One TCP connection that carries messages once both ends have proved that they hold the job key,
// and nothing before. Both rank 0, which gets it from its doorman with the handshake done, and the
// other ranks use it. Loop thread only.
//
// Before the proof no byte beyond the fixed-size handshake is even read from the socket. After it
// everything is sealed in frames of at most 64 KiB; a message is one or more frames, so that a
// large answer never lies in memory twice. A frame is 4 bytes (length, and whether the message ends
// here) and the sealed bytes.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <sluice/base/ids.h>
#include <sluice/base/net/address.h>
#include <sluice/base/net/epoll_loop.h>
#include <sluice/secret/handshake.h>
#include <sluice/secret/seal.h>

namespace sluice::rendezvous {

// The interval at which either end says what it is waiting for.
inline constexpr Duration kTellEvery = std::chrono::seconds(3);

// The claim of a rank in its handshake with rank 0: its rank, and nothing else.
inline secret::Claim claimOf(Rank rank) {
  secret::Claim claim{};
  for (size_t i = 0; i < 4; ++i) claim[i] = static_cast<std::byte>(index(rank) >> (8 * i) & 0xff);
  return claim;
}

inline Rank rankOf(const secret::Claim& claim) {
  uint32_t rank = 0;
  for (size_t i = 0; i < 4; ++i) rank |= std::to_integer<uint32_t>(claim[i]) << (8 * i);
  return Rank{rank};
}

class Connection final : public std::enable_shared_from_this<Connection> {
 public:
  struct Handlers {
    std::function<void()> proved;                      // the other end holds the job key
    std::function<void(const std::string&)> received;  // one whole message
    std::function<void(Status)> closed;  // the other end, or a fault, ended it; runs once
  };

  // `socket` does not block and may still be connecting; `handshake` may be done. `largestMessage`
  // bounds what the other end may send.
  static std::shared_ptr<Connection> start(net::EpollLoop& loop, net::Fd socket,
                                           secret::Handshake handshake, size_t largestMessage,
                                           Handlers handlers);
  ~Connection();

  void send(std::string message);
  // Sends one message of two parts. The second part is shared, so that a large answer to many ranks
  // is kept once.
  void send(std::string head, std::shared_ptr<const std::string> body);

  // Closes now; no handler runs afterwards.
  void close();

  bool isOpen() const { return socket_.valid(); }
  // True iff the other end has closed the connection, as it does when its process ends; false if
  // the connection broke.
  bool hasReachedEnd() const { return reachedEnd_; }
  const secret::Handshake& handshake() const { return handshake_; }
  const Address& peer() const { return peer_; }

 private:
  Connection(net::EpollLoop& loop, net::Fd socket, secret::Handshake handshake,
             size_t largestMessage, Handlers handlers);

  void onEvents(uint32_t events);
  void readSome();
  void readHandshake();
  void takeSessionKeys();
  void readFrames();
  Status takeFrames();
  void flush();
  bool fillOutgoing();  // false: nothing to send
  void watchFor(uint32_t events);
  void fail(Status why);
  Status ended(const char* how) const;  // the reason that there is nothing more to read

  net::EpollLoop& loop_;
  net::Fd socket_;
  const Address peer_;
  secret::Handshake handshake_;
  const size_t largestMessage_;
  Handlers handlers_;
  uint32_t watched_ = 0;
  int sendError_ = 0;
  bool reachedEnd_ = false;

  std::string incoming_;  // the handshake message or the frames that are not whole yet
  std::string message_;   // the frames of the present message, opened
  std::optional<secret::Opener> opener_;

  struct Part {
    std::shared_ptr<const std::string> bytes;  // not empty
    bool endsMessage;
  };
  std::deque<Part> queue_;
  size_t queueOffset_ = 0;  // bytes of queue_.front() that are sealed already
  std::string outgoing_;    // ready for the socket
  size_t outgoingOffset_ = 0;
  std::optional<secret::Sealer> sealer_;
};

}  // namespace sluice::rendezvous
