// A member's bytes through a real TlsStream over a socket pair, in records of any size, with key
// updates and broken records between them, into fabric::Incoming. A connection serves many inputs,
// since its handshake takes longer than all the rest; an input that breaks it makes the next one
// shake hands anew.
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <sluice/transport/fabric/tcp/tls_stream.h>

#include "stream_fuzz.h"

namespace sluice::fuzz {
namespace {

using fabric::Io;
using Outcome = Io::Outcome;

// Both ends of a connection.
struct Pair {
  std::unique_ptr<fabric::Stream> member;
  std::unique_ptr<fabric::Stream> receiver;
  secret::SessionKeys keys;  // of the receiver
  bool isBroken = false;
  size_t reads = 0;

  Pair() {
    static const auto kContext =
        std::make_shared<const fabric::TlsContext>(fixedKey(), /*keyUpdateBytes=*/100'000);
    std::array<int, 2> ends{};
    must(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0);
    member = fabric::TlsStream::client(kContext, net::Fd(ends[0]), kClaim.toBytes());
    receiver = fabric::TlsStream::server(kContext, net::Fd(ends[1]));
    Io one = Io::wait();
    Io two = Io::wait();
    while (one.outcome != Outcome::kMoved || two.outcome != Outcome::kMoved) {
      one = member->handshake();
      two = receiver->handshake();
      must(one.outcome != Outcome::kFailed && two.outcome != Outcome::kFailed);
    }
    keys = receiver->sessionKeys();
  }

  Io note(Io io) {
    isBroken |= io.outcome == Outcome::kFailed || io.outcome == Outcome::kEnd;
    return io;
  }
  // Reads what an input has left behind.
  void drain() {
    std::array<std::byte, 4096> bytes{};
    const iovec piece{bytes.data(), bytes.size()};
    while (!isBroken && (member->hasUnflushed() || receiver->hasUnflushed())) {
      note(member->flush());
      note(receiver->flush());
      while (note(receiver->read({&piece, 1})).outcome == Outcome::kMoved) continue;
      while (note(member->read({&piece, 1})).outcome == Outcome::kMoved) continue;
    }
    while (!isBroken && note(receiver->read({&piece, 1})).outcome == Outcome::kMoved) continue;
    while (!isBroken && note(member->read({&piece, 1})).outcome == Outcome::kMoved) continue;
  }
};

// Lends the receiving end to one Incoming.
class LentStream final : public fabric::Stream {
 public:
  explicit LentStream(Pair& pair) : pair_(pair) {}

  Io handshake() override { return Io::moved(0); }
  uint32_t handshakeEvents() const override { return 0; }
  bool saidHello() const override { return true; }
  secret::Claim claim() const override { return pair_.receiver->claim(); }
  secret::SessionKeys sessionKeys() const override { return pair_.keys; }
  wire::PayloadCheckKind payloadCheck() const override { return pair_.receiver->payloadCheck(); }
  Io read(std::span<const iovec> into) override {
    ++pair_.reads;
    return pair_.note(pair_.receiver->read(into));
  }
  bool hasUnread() const override { return pair_.receiver->hasUnread(); }
  Io write(std::span<const iovec> from) override { return pair_.note(pair_.receiver->write(from)); }
  bool hasUnflushed() const override { return pair_.receiver->hasUnflushed(); }
  Io flush() override { return pair_.note(pair_.receiver->flush()); }
  void endWrites() override {
    pair_.receiver->endWrites();
    pair_.isBroken = true;
  }
  int fd() const override { return pair_.receiver->fd(); }

 private:
  Pair& pair_;
};

class TlsChannel final : public Channel {
 public:
  std::unique_ptr<fabric::Stream> open(wire::PayloadCheckKind) override {
    if (pair_) pair_->drain();
    if (!pair_ || pair_->isBroken) pair_ = std::make_unique<Pair>();
    pair_->reads = 0;
    records_ = 0;
    return std::make_unique<LentStream>(*pair_);
  }
  wire::PayloadCheckKind payloadCheck() const override { return pair_->receiver->payloadCheck(); }
  const secret::Key& key() const override { return pair_->keys.receive; }
  size_t put(std::span<const std::byte> bytes, size_t split) override {
    constexpr size_t kAtOnce = size_t{32} << 10;  // the socket pair takes more
    constexpr size_t kMostRecords = 64;
    constexpr size_t kMostSplitRecords = 128;  // of one input: most of its time goes into records
    size_t taken = 0;
    for (size_t i = 0; i < kMostRecords && taken < std::min(bytes.size(), kAtOnce); ++i) {
      auto part = bytes.subspan(taken);
      if (split > 0 && ++records_ <= kMostSplitRecords)
        part = part.first(std::min(part.size(), split));
      const iovec piece{const_cast<std::byte*>(part.data()), std::min(part.size(), kAtOnce)};
      const Io io = pair_->note(pair_->member->write({&piece, 1}));
      if (io.outcome != Outcome::kMoved) break;
      taken += io.bytes;
    }
    return taken;
  }
  void endOfStream(bool isInOrder) override {
    if (isInOrder) {
      pair_->member->endWrites();
    } else {
      ::shutdown(pair_->member->fd(), SHUT_RDWR);
    }
    pair_->isBroken = true;
  }
  void disturb(Input& input) override {
    const uint8_t how = input.byte();
    if (how % 16 == 0) {  // rarely: each costs a handshake
      const auto raw = input.bytes(how / 16 + 1);
      [[maybe_unused]] const auto sent =
          ::send(pair_->member->fd(), raw.data(), raw.size(), MSG_NOSIGNAL);
      pair_->isBroken |= !raw.empty();
      return;
    }
    SSL* ssl = dynamic_cast<fabric::TlsStream&>(*pair_->member).ssl();
    if (pair_->isBroken || SSL_key_update(ssl, how % 2 == 0 ? SSL_KEY_UPDATE_REQUESTED
                                                            : SSL_KEY_UPDATE_NOT_REQUESTED) != 1)
      return;
    [[maybe_unused]] const int done = SSL_do_handshake(ssl);
    pair_->note(pair_->member->flush());
  }
  size_t reads() const override { return pair_->reads; }

 private:
  std::unique_ptr<Pair> pair_;
  size_t records_ = 0;  // since open(), while bytes were split
};

}  // namespace
}  // namespace sluice::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static sluice::fuzz::TlsChannel channel;
  sluice::fuzz::Player(channel).play({data, size});
  return 0;
}
