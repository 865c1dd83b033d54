#include <sluice/data/staging/lane.h>

#include <algorithm>
#include <bit>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include <sluice/base/log.h>
#include <sluice/data/staging/precautions.h>

namespace sluice::staging {
namespace {

// A copy of this size takes a device 100 us or more, and its start less than a tenth of that.
constexpr size_t kLargestPiece = size_t{2} << 20;

constexpr size_t kLeastPinned = size_t{64} << 10;

}  // namespace

Status checkPinnedBytes(const std::string& device, size_t pinnedBytes) {
  if (pinnedBytes >= kLeastPinned) return base::ok();
  return {Code::kInvalidArgument, fmt::format("staging-bytes is {}; {} needs at least {}",
                                              pinnedBytes, device, kLeastPinned)};
}

size_t pieceBytesOf(size_t pinnedBytes) {
  // Half of the pinned memory belongs to each direction, and as many buffers to each as copies
  // may be under way.
  return std::min(kLargestPiece, std::bit_floor(pinnedBytes / (2 * kCopiesUnderWay)));
}

Result<Buffer> Lane::takeBuffer() {
  // Pinned memory takes long to allocate. Buffers are made when they are first needed, and
  // kept.
  if (free_.empty()) {
    SLUICE_ASSIGN_OR_RETURN(auto made, device_.allocatePinned(bufferBytes_));
    return Buffer(std::move(made));
  }
  Buffer buffer = std::move(free_.back());
  free_.pop_back();
  return buffer;
}

Result<std::optional<Copy>> Lane::popEnded() {
  if (copies_.empty()) return std::optional<Copy>();
  // Copies of one direction end in the order in which they were queued, so only the oldest is
  // asked.
  SLUICE_ASSIGN_OR_RETURN(const bool hasEnded, copies_.front().end->isDone());
  if (!hasEnded && takes(Precaution::kLookBeforeReading)) return std::optional<Copy>();
  std::optional<Copy> ended(std::move(copies_.front()));
  copies_.pop_front();
  return ended;
}

void Lane::drain(Duration atMost, const std::function<void(const Copy&)>& ended) {
  constexpr auto kPause = std::chrono::milliseconds(1);
  const base::RealClock clock;
  const TimePoint until = clock.now() + atMost;
  while (!copies_.empty()) {
    const auto hasEnded = copies_.front().end->isDone();
    if (hasEnded.isOk() && *hasEnded) {
      if (ended) ended(copies_.front());
      copies_.pop_front();
    } else if (hasEnded.isOk() && clock.now() < until) {
      std::this_thread::sleep_for(kPause);
    } else {
      log("staging").warn("{} has not ended {} copies; their memory is kept for good",
                          device_.name(), copies_.size());
      (void)new std::deque<Copy>(std::move(copies_));  // the device may still write to it
      copies_.clear();
    }
  }
}

}  // namespace sluice::staging
