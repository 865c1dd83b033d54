// Shared by the two stream targets: a script, read from the fuzzer's input, of what a member of the
// job sends on one connection (whole messages, headers with changed fields under a good seal,
// goodbyes, any bytes) and of what its receiver does meanwhile (refuses, has no room, says later,
// closes), played against fabric::Incoming. One thread; no loop runs.
//
// Holds for every input: each landing ends once, and well only if every byte and its trailer were
// right; nothing is asked after the end; the number of reads is bounded by the number of bytes.
#pragma once

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <sodium.h>

#include <sluice/transport/fabric/tcp/incoming.h>

#include "header_fuzz.h"

namespace sluice::fuzz {

inline void must(bool holds) {
  if (!holds) std::abort();
}

// Takes numbers from the input; zeros after its end.
class Input final {
 public:
  Input(const uint8_t* data, size_t size) : rest_(data, size) {}
  bool isEmpty() const { return rest_.empty(); }
  uint8_t byte() {
    if (rest_.empty()) return 0;
    const uint8_t value = rest_[0];
    rest_ = rest_.subspan(1);
    return value;
  }
  // Returns a length: mostly small, sometimes more than any buffer of Incoming.
  size_t length() {
    const uint8_t kind = byte();
    const size_t value = byte();
    switch (kind % 4) {
      case 0: return value;
      case 1: return value * 64;
      case 2: return value * 320;
      default: return (size_t{16} << 10) - 128 + value;  // around what counts as large
    }
  }
  std::span<const std::byte> bytes(size_t count) {
    const auto part = rest_.first(std::min(count, rest_.size()));
    rest_ = rest_.subspan(part.size());
    return std::as_bytes(part);
  }

 private:
  std::span<const uint8_t> rest_;
};

// Carries the member's bytes to the Incoming.
class Channel {
 public:
  virtual ~Channel() = default;
  // Makes the receiving end, anew for each input.
  virtual std::unique_ptr<fabric::Stream> open(wire::PayloadCheckKind check) = 0;
  virtual wire::PayloadCheckKind payloadCheck() const = 0;
  virtual const secret::Key& key() const = 0;
  // Passes on a beginning of `bytes`, in pieces of `split` bytes, and returns how much.
  virtual size_t put(std::span<const std::byte> bytes, size_t split) = 0;
  virtual void endOfStream(bool isInOrder) = 0;
  virtual void disturb(Input& input) = 0;  // does something special to this kind of stream
  virtual size_t reads() const = 0;        // since open()
};

constexpr size_t kMostBytes = size_t{128} << 10;  // of one script
constexpr size_t kLargestLanding = size_t{96} << 10;
constexpr fabric::StreamClaim kClaim{Epoch{4}, Rank{2}, Rank{3}, wire::Lane::kUrgent};

class Player final : public fabric::Receiver, public fabric::Incoming::Owner {
 public:
  explicit Player(Channel& channel) : channel_(channel) {}

  void play(Input input) {
    const auto check = static_cast<wire::PayloadCheckKind>(input.byte() % 3);
    incoming_ = std::make_shared<fabric::Incoming>(loop(), channel_.open(check), kClaim, *this,
                                                   counters_, *this);
    check_ = wire::PayloadCheck(channel_.payloadCheck(), channel_.key());
    incoming_->start();
    while (!input.isEmpty() && total_ < kMostBytes && !hasEnded_) step(input);
    deliver();
    for (size_t i = 0; i < sent_.size() && !hasEnded_; ++i) resume();
    incoming_->end(Status(Code::kCancelled, "the input ends"), /*atOnce=*/false);
    must(open_ == 0);
    must(channel_.reads() <= total_ + 1000);
  }

  Result<fabric::Landing> onMessage(Rank from, fabric::Lane lane,
                                    const wire::Header& header) override {
    must(!hasEnded_ && from == kClaim.source && lane == kClaim.lane &&
         header.sequence >= nextSequence_);
    Sent* sent = header.sequence < sent_.size() ? &sent_[header.sequence] : nullptr;
    const Answer answer = sent != nullptr ? sent->answer : Answer::kTake;
    if (answer == Answer::kLater) {
      sent->answer = Answer::kTake;
      return fabric::Landing::later();
    }
    nextSequence_ = header.sequence + 1;
    if (answer == Answer::kRefuse || header.length > kLargestLanding)
      return Status(Code::kRefused, "no");
    const bool hasRoom = answer == Answer::kTake;
    // Make it exactly as large as it says, so that the sanitizer sees a byte too many.
    const size_t bytes = hasRoom ? header.length : header.length / 2;
    const auto place = std::shared_ptr<std::byte[]>(new std::byte[bytes]);
    const bool isKnown = sent != nullptr && sent->isWhole;
    const bool isGood = sent == nullptr || sent->isGood;
    ++open_;
    return fabric::Landing{
        .buffer = {place.get(), bytes},
        .done = [this, place, header, isKnown, isGood, hasRoom,
                 isEnded = false](const Status& status) mutable {
          must(!std::exchange(isEnded, true));
          --open_;
          if (!status.isOk()) return;
          must(isGood && (hasRoom || header.length == 0));
          if (!isKnown) return;
          must(std::memcmp(place.get(), payloadOf(header).data(), header.length) == 0);
        }};
  }
  void onPeerLost(Rank, const Status&) override { std::abort(); }  // the owner's affair
  void onPeerLeft(Rank) override { std::abort(); }

  void incomingHeard(Rank) override {}
  void incomingGoodbye(Rank, fabric::Lane) override {
    must(!hasEnded_ && !std::exchange(heardGoodbye_, true));
  }
  void incomingEnded(Rank, fabric::Lane) override { finish(); }
  void incomingLost(Rank, const Status& why) override {
    must(!why.isOk());
    finish();
  }

 private:
  enum class Answer : uint8_t { kTake, kRefuse, kNoRoom, kLater };
  struct Sent {
    Answer answer = Answer::kTake;
    bool isWhole = false;  // its payload is payloadOf() it
    bool isGood = true;    // its trailer fits
  };

  static net::EpollLoop& loop() {
    static net::EpollLoop loop;
    return loop;
  }
  // Returns the payload of a whole message: another part of one pattern for each sequence.
  static std::span<const std::byte> payloadOf(const wire::Header& header) {
    static const auto kPattern = [] {
      std::vector<std::byte> pattern(kMostBytes + 256);
      for (size_t i = 0; i < pattern.size(); ++i)
        pattern[i] = static_cast<std::byte>(i * 7 + i / 256);
      return pattern;
    }();
    return std::span(kPattern).subspan(header.sequence * 31 % 256, header.length);
  }

  void step(Input& input) {
    switch (input.byte() % 12) {
      case 0:
      case 1:
      case 2: return sendMessage(input);
      case 3: return sendChangedHeader(input);
      case 4: return append(seal(header(input.byte() % 8 == 7 ? 8 : 0, wire::Flags::kGoodbye)));
      case 5: return append(input.bytes(input.byte()));
      case 6: return append(std::vector<std::byte>(input.length(), std::byte{0x5a}));
      case 7: split_ = input.length(); return;
      case 8: return deliver();
      case 9: return resume();
      case 10:
        if (input.byte() % 4 != 0) return channel_.disturb(input);
        deliver();
        if (!hasEnded_) incoming_->sayGoodbye(Status(Code::kCancelled, "we close"));
        return;
      default:
        if (input.byte() % 4 != 0) return;
        deliver();
        channel_.endOfStream(input.byte() % 2 == 0);
        return wake();
    }
  }
  wire::Header header(uint64_t length, wire::Flags flags) {
    sent_.emplace_back();
    return {.epoch = kClaim.epoch,
            .source = kClaim.source,
            .destination = kClaim.destination,
            .lane = kClaim.lane,
            .sequence = sent_.size() - 1,
            .flags = flags,
            .length = length};
  }
  wire::HeaderBytes seal(const wire::Header& header) { return wire::seal(header, channel_.key()); }
  void append(std::span<const std::byte> bytes) {
    pending_.insert(pending_.end(), bytes.begin(), bytes.end());
    total_ += bytes.size();
  }

  void sendMessage(Input& input) {
    const uint8_t how = input.byte();
    const wire::Header header = this->header(input.length(), wire::Flags::kEncoded);
    Sent& sent = sent_.back();
    sent.answer = static_cast<Answer>(how % 4);
    sent.isWhole = true;
    append(seal(header));
    const auto payload = payloadOf(header);
    check_.begin(header.sequence);
    check_.add(payload);
    auto trailer = check_.end();
    const size_t trailerBytes = check_.trailerBytes(payload.size());
    sent.isGood = trailerBytes == 0 || how < 200;
    if (!sent.isGood) trailer[how % trailerBytes] ^= std::byte{1};
    append(payload);
    append(std::span(trailer).first(trailerBytes));
  }
  // Sends a good header in which some bytes are changed before it is sealed. The bytes after it may
  // be its payload or not.
  void sendChangedHeader(Input& input) {
    constexpr size_t kCheckAt = wire::kHeaderBytes - 16;
    wire::HeaderBytes bytes = seal(header(0, wire::Flags::kNone));
    for (uint8_t left = input.byte() % 8; left > 0; --left) {
      const size_t at = input.byte() % kCheckAt;
      bytes[at] ^= static_cast<std::byte>(input.byte());
    }
    uint64_t length = 0;
    std::memcpy(&length, bytes.data() + 48, sizeof length);
    // No bytes that follow end in the right tag. They may have the right checksum, which has only
    // 32 bits.
    sent_.back().isGood = length == 0 || check_.kind() != wire::PayloadCheckKind::kTag;
    auto* raw = reinterpret_cast<unsigned char*>(bytes.data());
    crypto_generichash(raw + kCheckAt, wire::kHeaderBytes - kCheckAt, raw, kCheckAt,
                       reinterpret_cast<const unsigned char*>(channel_.key().bytes().data()),
                       channel_.key().bytes().size());
    append(bytes);
  }

  void deliver() {
    std::span<const std::byte> rest = pending_;
    while (!rest.empty() && !hasEnded_) {
      // Deliver short messages byte by byte, long ones in some hundred pieces: a script must not
      // take long.
      const size_t split = split_ > 0 ? std::max(split_, rest.size() / 256) : 0;
      const size_t taken = channel_.put(rest, split);
      rest = rest.subspan(taken);
      wake();
      if (taken == 0) break;  // it reads nothing now
    }
    pending_.erase(pending_.begin(), pending_.end() - static_cast<ptrdiff_t>(rest.size()));
  }
  void wake() {
    if (!hasEnded_) incoming_->onEvents(EPOLLIN);
  }
  void resume() {
    if (hasEnded_) return;
    incoming_->resume();
    deliver();
  }
  void finish() {
    must(!std::exchange(hasEnded_, true));
    incoming_->end(Status(Code::kPeerLost, "rank 2 is lost"), /*atOnce=*/false);
    must(open_ == 0);
  }

  Channel& channel_;
  base::Guarded<fabric::Counters> counters_;
  std::shared_ptr<fabric::Incoming> incoming_;
  wire::PayloadCheck check_;
  std::vector<Sent> sent_;  // by sequence
  std::vector<std::byte> pending_;
  size_t total_ = 0;
  size_t split_ = 0;  // 0: as much as there is
  uint64_t nextSequence_ = 0;
  size_t open_ = 0;  // landings that have not ended
  bool heardGoodbye_ = false;
  bool hasEnded_ = false;
};

}  // namespace sluice::fuzz

// The default keeps 256 MB of freed memory, which costs more than everything else.
extern "C" [[gnu::used]] inline const char* __asan_default_options() {
  return "quarantine_size_mb=4:malloc_context_size=1";
}
