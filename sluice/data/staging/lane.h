// The copies of one direction that are under way, and their pinned memory. Belongs to the stager's
// thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sluice/device.h>

#include <sluice/base/clock.h>
#include <sluice/base/ids.h>
#include <sluice/base/status.h>

namespace sluice::staging {

// The most copies of one direction that are under way. With one the device would rest between two
// copies; with more than two an urgent piece would wait for more copies of others.
inline constexpr size_t kCopiesUnderWay = 2;

// Copies that are under way are waited for so long at the end.
inline constexpr Duration kLimitOfCopies = std::chrono::seconds(10);

// Refuses so little pinned memory that the start of a copy would cost more than the copy.
Status checkPinnedBytes(const std::string& device, size_t pinnedBytes);

// Returns the bytes of one copy at most, if the copies of both directions have so much pinned
// memory together. REQUIRES: checkPinnedBytes()
size_t pieceBytesOf(size_t pinnedBytes);

using Buffer = std::shared_ptr<PinnedBytes>;

struct Copy {
  TensorId tensor{};
  size_t piece = 0;
  Step step{};        // of a result
  TimePoint begun{};  // when it was queued
  Buffer buffer{};
  std::shared_ptr<const DeviceMark> end{};
  std::shared_ptr<const void> keeps{};  // the memory on the device
  bool isAhead = false;                 // true iff the copy waits for the gradient on the device
  bool isLast = false;                  // true iff the tensor's other copies began before it
};

class CopyLane final {
 public:
  CopyLane(Device& device, size_t bufferBytes) : device_(device), bufferBytes_(bufferBytes) {}

  bool hasRoom() const { return copies_.size() < kCopiesUnderWay; }
  bool isEmpty() const { return copies_.empty(); }
  // REQUIRES: !isEmpty()
  const Copy& oldest() const { return copies_.front(); }

  // Returns memory for one piece. REQUIRES: hasRoom()
  Result<Buffer> takeBuffer();
  // Takes memory back that takeBuffer() gave out.
  void returnBuffer(Buffer buffer) { free_.push_back(std::move(buffer)); }

  void push(Copy copy) { copies_.push_back(std::move(copy)); }
  // Returns the oldest copy if it has ended; copies end in the order in which they began.
  Result<std::optional<Copy>> popEnded();

  // Waits until every copy has ended, and calls `ended` for each. If they do not end in time, their
  // memory is never freed.
  void drain(Duration atMost, const std::function<void(const Copy&)>& ended = {});

 private:
  Device& device_;
  const size_t bufferBytes_;
  std::vector<Buffer> free_;
  std::deque<Copy> copies_;  // oldest first
};

}  // namespace sluice::staging
