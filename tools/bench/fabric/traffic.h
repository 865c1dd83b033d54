// The traffic of a fabric measurement: the senders, and the place where messages land. Belongs to
// the fabric's loop.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <sluice/transport/fabric/fabric.h>
#include <sluice/transport/queue/egress.h>

namespace sluice::bench {

inline constexpr size_t kMessageBytes = 200'000;     // a slice of 50,000 parameters
inline constexpr size_t kBacklogBytes = 40'000'000;  // the urgent slice has to overtake these

// The sender's own bits of a header.
inline constexpr wire::Flags kUrgentSlice{0x0100};  // its step is the time at which it was ready
inline constexpr wire::Flags kLastOfBacklog{0x0200};
inline constexpr wire::Flags kRoundIsOver{0x0400};  // the receiver's answer to both

// Lands messages in buffers that are used again, counts those that land in a window of time, and
// adds each to a sum if asked to.
class Sink final {
 public:
  explicit Sink(bool sums);

  fabric::Landing land(const wire::Header& header, const Loop& loop);

  void count(TimePoint from, TimePoint to) {
    from_ = from;
    to_ = to;
  }
  uint64_t countedBytes() const { return counted_; }
  std::vector<double> urgentMs;  // the time that each urgent slice took
  // Runs for each message with one of the flags above.
  std::function<void(const wire::Header& header)> onMarked;

 private:
  using Memory = std::vector<std::byte>;
  void landed(const wire::Header& header, const Memory& memory, TimePoint now);

  const bool sums_;
  std::vector<std::shared_ptr<Memory>> free_;
  std::vector<Memory> totals_;
  size_t nextTotal_ = 0;
  TimePoint from_ = TimePoint::max();
  TimePoint to_ = TimePoint::max();
  uint64_t counted_ = 0;
};

// Sends to each of some ranks as fast as the fabric takes it, until it is stopped.
class Flood final {
 public:
  Flood(fabric::Fabric& fabric, const std::vector<Rank>& to);
  void start();
  void stop() { isStopped_ = true; }

 private:
  void sendNext(Rank to);

  fabric::Fabric& fabric_;
  const std::vector<Rank> to_;
  const std::vector<float> payload_;
  bool isStopped_ = false;
};

// Sends a backlog through an egress queue, as a session does, and something urgent into the middle
// of it.
class Overtaking final {
 public:
  Overtaking(fabric::Fabric& fabric, Rank to, const queue::EgressOptions& options);
  void startRound();
  void stop();

 private:
  void push(uint32_t priority, wire::Flags flags);
  void pump();

  fabric::Fabric& fabric_;
  const Rank to_;
  queue::Egress egress_;
  const std::vector<float> payload_;
  std::vector<fabric::Message> messages_;  // by tag
  std::optional<TimerId> urgentTimer_;
};

}  // namespace sluice::bench
