// Bytes that were read from a stream and are not used yet: headers, the payloads of small messages,
// and the beginning of the next one. A value; one owner.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

namespace sluice::fabric {

class ReadAhead final {
 public:
  explicit ReadAhead(size_t capacity) : bytes_(capacity) {}

  std::span<const std::byte> unused() const {
    return std::span(bytes_).subspan(begin_, end_ - begin_);
  }

  // Uses up the first `bytes` of unused(). REQUIRES: bytes <= unused().size()
  void use(size_t bytes) { begin_ += std::min(bytes, end_ - begin_); }
  void clear() { begin_ = end_ = 0; }

  // Returns the room to read the next bytes to, behind the unused ones, so that at most `most`
  // bytes are unused afterwards. Empty if `most` bytes are unused already. Moves the unused bytes
  // to the front.
  std::span<std::byte> room(size_t most) {
    if (begin_ > 0) std::memmove(bytes_.data(), bytes_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    const size_t last = std::clamp(most, end_, bytes_.size());
    return std::span(bytes_).subspan(end_, last - end_);
  }
  // Says that the first `bytes` of room() hold something now.
  void filled(size_t bytes) { end_ += std::min(bytes, bytes_.size() - end_); }

 private:
  std::vector<std::byte> bytes_;
  size_t begin_ = 0;  // begin_ <= end_ <= bytes_.size()
  size_t end_ = 0;
};

}  // namespace sluice::fabric
