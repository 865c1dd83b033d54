// Watches over the ranks that this rank talks with: says "I live" to each several times a second,
// gives up on one that has been silent for too long, and passes on what it learns about losses.
// Stands between an engine and its receiver. Used by watched_fabric.cc only. Loop thread only,
// where nothing else is said.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <sluice/transport/fabric/fabric.h>
#include <sluice/transport/fabric/watch/clock_offset.h>
#include <sluice/transport/fabric/watch/life_sign.h>
#include <sluice/transport/fabric/watch/silence.h>
#include <sluice/transport/fabric/watch/watched_fabric.h>

namespace sluice::fabric {

class Watchman final : public Receiver, public std::enable_shared_from_this<Watchman> {
 public:
  // Without a pulse a rank that is busy for longer than the silence limit is taken for lost.
  Watchman(Loop& loop, const LivenessOptions& options, Receiver& receiver, Pulse* pulse);

  bool hasStopped() const { return hasStopped_; }  // any thread

  void begin(Fabric& fabric);
  void stop();  // touches the fabric no more

  void watch(Rank rank);
  std::optional<ClockOffset> clockOffset(Rank rank) const;
  std::optional<Duration> busyFor(Rank rank) const;

  Result<Landing> onMessage(Rank from, Lane lane, const wire::Header& header) override;
  void onPeerLost(Rank from, const Status& why) override;
  void onPeerLeft(Rank from) override;

 private:
  struct LastMessage {
    Stage stage;
    SliceId slice;
    Step step;
  };
  struct Peer {
    explicit Peer(TimePoint now) : silence(now) {}

    Silence silence;
    std::optional<LastMessage> lastMessage;
    std::optional<TimePoint>
        putOffAt;  // our receiver put its control lane off: heartbeats wait behind that
    bool isBeatUnderWay = false;        // one at a time, so that unread beats do not pile up
    std::optional<Silence> doubt;       // since another rank reported its loss
    LossNotice notice;                  // of that other rank
    std::optional<TimePoint> lastBeat;  // by its clock
    TimePoint lastBeatAt;               // by ours
    OffsetEstimate offset;
  };

  struct Place {
    std::unique_ptr<Peer> peer;  // null: not watched
    bool isGone = false;         // never watched again
  };

  Place& at(Rank rank);
  Peer* find(Rank rank) const;
  std::unique_ptr<Peer> forget(Rank rank);
  void tick();
  void scheduleTick(TimePoint now);
  void sendBeats(TimePoint now);
  void sendBeat(Rank rank, TimePoint now);
  std::optional<Status> judge(Rank rank, Peer& peer, TimePoint now);
  Status believe(Rank lost, const LossNotice& notice);
  void excuse(Rank rank, Peer& peer, TimePoint now);
  std::string lastHeardOf(const Peer& peer) const;
  void tell(Rank rank, const LifeSign& sign, Done done);
  void spread(const LossNotice& notice, Rank heardFrom);
  Result<Landing> land(Rank from, const wire::Header& header);
  void take(Rank from, const Heartbeat& beat);
  void take(Rank from, const LossNotice& notice);
  void take(Rank, const PulseBeat&) {}  // has no business on this fabric

  Loop& loop_;
  const LivenessOptions options_;
  Receiver& receiver_;
  std::atomic<bool> hasStopped_{false};

  Fabric* fabric_ = nullptr;   // between begin() and stop()
  Pulse* pulse_;               // until stop(); may be null
  std::vector<Place> places_;  // by rank; grows with the highest seen
  std::set<Rank>
      passedOn_;  // losses that others have noticed first: their notices have been passed on
  std::optional<TimerId> timer_;
  TimePoint due_;  // when the timer should run
  TimePoint nextBeat_;
};

}  // namespace sluice::fabric
