// What a session tells the flight recorder of its job: the path of slices and the waits, as any
// observer hears of them, and beside these the peers, broadcasts and failures.
//
// Thread safety: any thread, where nothing else is said.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sluice/base/ids.h>
#include <sluice/base/loop.h>
#include <sluice/data/plan/plan.h>
#include <sluice/observe/flight/flight_recorder.h>
#include <sluice/observer.h>
#include <sluice/transport/fabric/watch/watched_fabric.h>

namespace sluice::session {

class FlightLog final : public StageObserver {
 public:
  // REQUIRES: the recorder and the loop outlive this.
  FlightLog(flight::FlightRecorder& recorder, const Loop& loop, const plan::Plan& plan,
            const std::string& session);

  void onStage(const StageEvent& event) override;
  void onWait(const WaitEvent& event) override;
  void onWaitBegins(const WaitEvent& event) override;
  void onWaitFails(const WaitEvent& event, const Status& why) override;

  // A message of this step has come. Loop thread only.
  void heard(Rank from, Step step);
  // Loop thread only.
  void peerLost(Rank peer, const Status& why);
  void peerLeft(Rank peer);
  // Another rank says that it takes part in no further step. That is no failure yet.
  void peerEnds(const Status& why);
  void failed(const Status& why);

  // A long wait, and what it lacks. Loop thread only.
  void stalled(TensorId tensor, Step step, std::string_view lacks);

  void broadcastBegins(Rank root, size_t bytes);
  void broadcastEnds(Rank root, const Status& status);

  // Ranks of the session are those of this epoch from now on; the file names every member by its
  // first rank. Loop thread only.
  void enter(Epoch epoch, std::span<const Rank> members);

  // The session's fabric, which knows the clocks of other ranks. REQUIRES: it outlives all calls of
  // peerLost().
  void setFabric(const fabric::PeerAwareFabric& fabric) { fabric_ = &fabric; }

  // The session is over. `why` is the reason if it has not ended in good order.
  void end(const Status& why);

 private:
  struct Members {
    std::vector<uint32_t> first;  // by rank; empty: every rank is its own first rank
  };

  void add(flight::EventKind kind, flight::Event event) const;
  void addText(flight::EventKind kind, flight::Event event, std::string_view text) const;
  uint32_t memberAt(Rank rank) const;
  void noteStep(Step step, TimePoint at);
  void noteClocks() const;

  flight::FlightRecorder& recorder_;
  flight::Ring& ring_;
  const Loop& loop_;
  const uint16_t session_;
  std::vector<uint32_t> names_;       // by TensorId
  std::vector<SliceId> firstSlices_;  // by TensorId
  std::vector<uint32_t> bytes_;       // by SliceId
  std::atomic<uint64_t> steps_{0};    // begun
  std::atomic<const Members*> members_;
  std::atomic<const fabric::PeerAwareFabric*> fabric_{nullptr};
  std::vector<std::unique_ptr<const Members>> epochs_;  // loop only, but for the first
  std::vector<uint64_t> stepsOf_;  // loop only: the step that each peer is in, plus 1
  std::atomic<bool> hasEnded_{false};
};

}  // namespace sluice::session
