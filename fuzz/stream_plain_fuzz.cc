// A member's bytes in any splits, straight from memory into fabric::Incoming.
#include "stream_fuzz.h"

namespace sluice::fuzz {
namespace {

// The bytes that one connection delivers.
struct Bytes {
  std::vector<std::byte> all;
  size_t begin = 0;
  size_t split = 0;
  std::optional<fabric::Io> end;  // after the last byte; else there is more to wait for
  bool takesWrites = true;
  size_t reads = 0;
};

// Only this many reads are split; later reads get all there is. A script of small pieces only would
// take a millisecond, and find nothing more.
constexpr size_t kMostSplitReads = 500;

class MemoryStream final : public fabric::Stream {
 public:
  MemoryStream(Bytes& bytes, wire::PayloadCheckKind check) : bytes_(bytes), check_(check) {}

  fabric::Io handshake() override { return fabric::Io::moved(0); }
  uint32_t handshakeEvents() const override { return 0; }
  bool saidHello() const override { return true; }
  secret::Claim claim() const override { return kClaim.toBytes(); }
  secret::SessionKeys sessionKeys() const override {
    return {.send = fixedKey(), .receive = fixedKey()};
  }
  wire::PayloadCheckKind payloadCheck() const override { return check_; }
  fabric::Io read(std::span<const iovec> into) override {
    ++bytes_.reads;
    size_t left = bytes_.all.size() - bytes_.begin;
    if (left == 0) return bytes_.end.value_or(fabric::Io::wait());
    if (bytes_.split > 0 && bytes_.reads < kMostSplitReads) left = std::min(left, bytes_.split);
    size_t moved = 0;
    for (const iovec& piece : into) {
      const size_t part = std::min(left - moved, piece.iov_len);
      if (part > 0) std::memcpy(piece.iov_base, bytes_.all.data() + bytes_.begin, part);
      bytes_.begin += part;
      moved += part;
    }
    must(moved > 0);  // nobody reads without room
    return fabric::Io::moved(moved);
  }
  bool hasUnread() const override { return false; }
  fabric::Io write(std::span<const iovec> from) override {
    return bytes_.takesWrites ? fabric::Io::moved(from[0].iov_len) : fabric::Io::wait();
  }
  bool hasUnflushed() const override { return false; }
  fabric::Io flush() override { return fabric::Io::moved(0); }
  void endWrites() override {}
  int fd() const override {
    static const net::Fd kNobody(::eventfd(0, EFD_CLOEXEC));
    return kNobody.get();
  }

 private:
  Bytes& bytes_;
  const wire::PayloadCheckKind check_;
};

class MemoryChannel final : public Channel {
 public:
  std::unique_ptr<fabric::Stream> open(wire::PayloadCheckKind check) override {
    check_ = check;
    return std::make_unique<MemoryStream>(bytes_, check);
  }
  wire::PayloadCheckKind payloadCheck() const override { return check_; }
  const secret::Key& key() const override {
    static const secret::Key kKey = fixedKey();
    return kKey;
  }
  size_t put(std::span<const std::byte> bytes, size_t split) override {
    // A receiver that waits does not read, and the kernel would not take all of the bytes.
    if (bytes_.all.size() - bytes_.begin > kMostBytes / 4) return 0;
    bytes_.all.insert(bytes_.all.end(), bytes.begin(), bytes.end());
    bytes_.split = split;
    return bytes.size();
  }
  void endOfStream(bool isInOrder) override {
    bytes_.end = isInOrder ? fabric::Io::end() : fabric::Io::failed(Status(Code::kPeerLost, "cut"));
  }
  void disturb(Input& input) override { bytes_.takesWrites = input.byte() % 2 == 0; }
  size_t reads() const override { return bytes_.reads; }

 private:
  Bytes bytes_;
  wire::PayloadCheckKind check_ = wire::PayloadCheckKind::kNone;
};

}  // namespace
}  // namespace sluice::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sluice::fuzz::MemoryChannel channel;
  sluice::fuzz::Player(channel).play({data, size});
  return 0;
}
