// A byte stream between two ranks that proves the job key before it carries anything. Plain or TLS;
// nobody above knows which. Never blocks. Loop thread only.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <span>

#include <sluice/base/status.h>
#include <sluice/secret/handshake.h>
#include <sluice/transport/wire/payload_check.h>

namespace sluice::fabric {

inline constexpr size_t kBytesPerEvent = size_t{1} << 20;  // then other connections have their turn
// The limit for a payload that is checked: this much is still in the CPU's cache when it is read
// for the second time.
inline constexpr size_t kCheckedBytesPerCall = size_t{256} << 10;

// The outcome of one attempt to move bytes.
struct Io {
  enum class Outcome { kMoved, kWait, kEnd, kFailed };
  Outcome outcome = Outcome::kMoved;
  size_t bytes = 0;  // of kMoved
  Status status;     // of kFailed

  static Io moved(size_t bytes) { return {Outcome::kMoved, bytes, {}}; }
  static Io wait() { return {Outcome::kWait, 0, {}}; }
  static Io end() { return {Outcome::kEnd, 0, {}}; }
  static Io failed(Status status) { return {Outcome::kFailed, 0, std::move(status)}; }
};

class Stream {
 public:
  virtual ~Stream() = default;

  // Continues the handshake; kMoved when both ends have proved the key. After kWait, wait for
  // handshakeEvents().
  virtual Io handshake() = 0;
  virtual uint32_t handshakeEvents() const = 0;
  // True iff the client's first message was made with the job key, or recorded from one that was.
  // For servers.
  virtual bool saidHello() const = 0;

  // REQUIRES, for all that follows: the handshake is done.
  virtual secret::Claim claim() const = 0;
  virtual secret::SessionKeys sessionKeys() const = 0;
  // Returns the kind of check that follows every payload. A stream that notices changed bytes
  // itself needs no check. Both ends give the same kind.
  virtual wire::PayloadCheckKind payloadCheck() const = 0;

  // Fills `into` from its beginning, as far as bytes are here: kMoved means at least one. REQUIRES:
  // `into` has room.
  virtual Io read(std::span<const iovec> into) = 0;
  // True iff read() has more to give that epoll does not know of.
  virtual bool hasUnread() const = 0;

  // Takes bytes from the beginning of `from`; the taken bytes are the stream's.
  virtual Io write(std::span<const iovec> from) = 0;
  // True iff the stream has taken bytes that the kernel has not: call flush() whenever the socket
  // is writable, until this is false.
  virtual bool hasUnflushed() const = 0;
  virtual Io flush() = 0;

  virtual void
  endWrites() = 0;  // the other end reads to its end and sees it. REQUIRES: !hasUnflushed()
  virtual int fd() const = 0;
};

// Resets the connection: the other end notices at once, even if bytes are still unsent or unread,
// and even if another process has a descriptor of it. `fd` stays open and is of no further use.
void closeWithReset(int fd);

}  // namespace sluice::fabric
