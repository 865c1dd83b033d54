// The pulse of a process: a thread with a loop, a port and connections of its own, so that nothing
// that keeps the work loop busy can keep it silent. Every heartbeat-interval it tells each rank it
// exchanges pulses with for how long the work loop has been busy and what the training thread does,
// and it keeps the words of the others.
//
// The loss of a pulse ends nothing: without it a rank is judged by the heartbeats on its fabric
// alone.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <sluice/base/mutex.h>
#include <sluice/base/net/epoll_loop.h>
#include <sluice/transport/fabric/fabric.h>
#include <sluice/transport/fabric/watch/life_sign.h>
#include <sluice/transport/fabric/watch/pulse.h>
#include <sluice/transport/fabric/watch/watched_fabric.h>

namespace sluice::fabric {

class PulseThread final : public Pulse, private Receiver {
 public:
  // Makes the fabric that the pulses travel on, which belongs to the given loop.
  using MakeEngine = std::function<Result<std::unique_ptr<NodeFabric>>(net::EpollLoop&, Receiver&)>;

  // `training` may be null: then the others are not told what it does. REQUIRES: `work` and
  // `training` outlive this.
  static Result<std::unique_ptr<PulseThread>> start(const LivenessOptions& options,
                                                    const net::EpollLoop& work, size_t worldSize,
                                                    const MakeEngine& makeEngine,
                                                    const base::TrainingThread* training = nullptr);
  ~PulseThread() override;  // in good order: the others do not miss it
  PulseThread(const PulseThread&) = delete;
  PulseThread& operator=(const PulseThread&) = delete;

  void exchangeWith(Rank peer) override;
  std::optional<Word> lastWord(Rank peer) const override;

 private:
  struct Peer {
    bool isTold = false;  // gets our pulse
    bool isGone = false;  // it has left, or its pulse is lost
    bool isBeatUnderWay =
        false;  // one at a time, so that beats do not pile up for a peer that does not read
    Duration reported{};  // busy time of its loop, once that was logged; zero: it was not
  };

  PulseThread(const LivenessOptions& options, const net::EpollLoop& work, size_t worldSize,
              const base::TrainingThread* training);

  void begin(Fabric& fabric);
  void addPeer(Rank rank);
  void tick();
  void beat(Rank rank);
  void take(Rank from, const PulseBeat& beat);
  void report(Rank from, Duration busy);
  void forget(Rank rank);

  Result<Landing> onMessage(Rank from, Lane lane, const wire::Header& header) override;
  void onPeerLost(Rank from, const Status& why) override;
  void onPeerLeft(Rank from) override;

  const LivenessOptions options_;
  const net::EpollLoop& work_;
  const base::TrainingThread* const training_;             // may be null
  base::Guarded<std::vector<std::optional<Word>>> words_;  // by rank

  // The thread's loop only.
  std::vector<Peer> peers_;   // by rank
  Fabric* engine_ = nullptr;  // between begin() and the end

  // Declared last: what the thread touches outlives it.
  net::LoopThread thread_{"sluice-pulse"};
  std::unique_ptr<Fabric> fabric_;
};

}  // namespace sluice::fabric
