// The training thread of a simulated host: it waits at the gates and lets the times of a profile
// pass, where a real one would compute. It has a processor of its own, beside the host's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include <sluice/algorithms/strategy.h>
#include <sluice/base/status.h>
#include <sluice/data/gate/gates.h>
#include <sluice/data/plan/plan.h>
#include <sluice/data/timing/bounds.h>
#include <sluice/observer.h>
#include <tools/sim/event_queue.h>
#include <tools/sim/host_loop.h>

namespace sluice::sim {

class ReplayedWorker final : private EventTarget {
 public:
  struct Script {
    std::span<const timing::Layer> layers{};
    int steps = 0;
    // Seconds of every step outside the passes: reading data, the user's own optimizer. Gates may
    // open meanwhile.
    double otherSeconds = 0;
    std::function<double(uint64_t step)> factor{};  // how many times longer this step takes
    std::function<void()> onEnd{};                  // all results are here, or an error
  };
  struct Parts {
    EventQueue& events;
    HostLoop& loop;
    gate::Gates& gates;
    algorithms::Strategy& strategy;
    StageObserver& observer;  // hears of gradients that are ready, and of waits
    const plan::Plan& plan;
    Rank rank{};
  };
  ReplayedWorker(const Parts& parts, Script script) : parts_(parts), script_(std::move(script)) {}

  void start();
  // Ends with this reason: the host is lost.
  void stop(const Status& why) { end(why); }

  const Status& status() const { return status_; }
  bool hasEnded() const { return hasEnded_; }
  // Returns when training began, and when each backward pass ended.
  const std::vector<TimePoint>& ends() const { return ends_; }

 private:
  enum class Piece : uint8_t { kGateOpened, kForward, kBackward, kOther };

  void onEvent(uint64_t piece) override;
  void goForward();
  void goBackward();
  void handOver(TensorId tensor);
  void endWait();  // if there is one
  void compute(double seconds, Piece piece);
  void end(const Status& status);

  const Parts parts_;
  const Script script_;
  Status status_;
  bool hasEnded_ = false;
  uint32_t tensor_ = 0;  // the next one; in a backward pass, those before it are left
  double factor_ = 1;
  std::optional<TimePoint> waitingSince_;  // at the gate of tensor_
  std::vector<TimePoint> ends_;
};

}  // namespace sluice::sim
