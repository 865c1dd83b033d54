// Sends to one rank as fast as the link takes it for a short time, and measures how fast that was.
//
// The bytes under way are bounded: little more than twice those that the link holds, by the delivery
// rate so far and the idle round trip. So the probe itself fills no queue until it overflows, and segments
// that TCP must send again were lost by the network. Loop thread only.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include <sluice/base/loop.h>
#include <tools/probe/talker.h>

namespace sluice::probe {

struct LoadOptions {
  Rank to{};
  Duration length{};     // of the load
  Duration patience{};   // for the last answers, after it
  Duration roundTrip{};  // of the idle link
  // Not 0: one question of this size at a time, each a packet of its own, and so many at most.
  size_t singleBytes = 0;
  size_t mostSingles = 0;
};

struct LoadResult {
  Status status;  // not ok: nothing was measured
  double bitsPerSecond = 0;
  uint64_t bytes = 0;
};

class Load final : public std::enable_shared_from_this<Load> {
 public:
  using Done = std::function<void(const LoadResult&)>;
  // `talker` must live until `done` has run.
  static void start(Loop& loop, Talker& talker, const LoadOptions& options, Done done);

 private:
  Load(Loop& loop, Talker& talker, const LoadOptions& options, Done done)
      : loop_(loop), talker_(talker), options_(options), done_(std::move(done)) {}

  struct Delivery {
    TimePoint when;
    uint64_t bytes;  // from the beginning to here
  };
  void pump();
  void delivered(size_t bytes, const Status& status);
  size_t window() const;
  void finish();
  LoadResult result() const;

  Loop& loop_;
  Talker& talker_;
  const LoadOptions options_;
  Done done_;
  TimePoint begun_{};
  size_t underWay_ = 0;
  std::deque<Delivery> deliveries_;
  size_t recent_ = 0;  // the delivery from which the present rate is counted
  Status failed_;
  bool hasEnded_ = false;
  std::optional<TimerId> timer_;
};

}  // namespace sluice::probe
