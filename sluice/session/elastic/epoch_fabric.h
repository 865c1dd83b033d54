// The fabric of a session whose members may be lost: one object for all epochs, with the
// connections of the present epoch behind it. Between two epochs there are no connections: sends
// fail, and nothing comes.
//
// Keeps the contract of fabric.h. Ranks are those of the present epoch. replace() and drop() run on
// the loop.
#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include <sluice/base/mutex.h>
#include <sluice/transport/fabric/watch/watched_fabric.h>

namespace sluice::session {

class EpochFabric final : public fabric::PeerAwareFabric {
 public:
  explicit EpochFabric(std::unique_ptr<fabric::WatchedFabric> first);
  ~EpochFabric() override;
  EpochFabric(const EpochFabric&) = delete;
  EpochFabric& operator=(const EpochFabric&) = delete;

  // Ends the connections of an epoch, without a goodbye: the others leave the epoch, too. All that is
  // pending completes before this returns, or in tasks that are posted before it does.
  void drop();
  // Begins an epoch. REQUIRES: drop() came before.
  void replace(std::unique_ptr<fabric::WatchedFabric> next);

  // Empty between two epochs.
  std::optional<fabric::ClockOffset> clockOffset(Rank peer) const override;
  std::optional<Duration> busyFor(Rank peer) const override;
  void send(Rank to, fabric::Lane lane, const fabric::Message& message, fabric::ConstBuffer payload,
            fabric::Done done) override;
  void close(fabric::Done done) override;
  void resume(Rank from, fabric::Lane lane) override;
  void giveUp(Rank peer, Status why) override;
  std::optional<TimePoint> lastHeard(Rank peer) const override;
  fabric::Counters counters() const override;  // of all epochs
  Rank rank() const override { return rank_; }
  size_t worldSize() const override { return worldSize_; }
  Loop& loop() const override { return loop_; }

 private:
  using Owned = std::unique_ptr<fabric::WatchedFabric>;

  // Runs the task on the loop: at once if this is the loop's thread.
  template <typename F>
  void onLoop(F&& task);

  Loop& loop_;
  std::atomic<Rank> rank_;
  std::atomic<size_t> worldSize_;
  base::Guarded<Owned> owned_;            // null between two epochs; replaced on the loop
  fabric::WatchedFabric* present_;        // the same, for the loop
  base::Guarded<fabric::Counters> past_;  // of the epochs before
};

}  // namespace sluice::session
