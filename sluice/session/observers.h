// Several observers of the path of slices as one. Filled before training, then only read.
#pragma once

#include <vector>

#include <sluice/plan/stage_observer.h>

namespace sluice::session {

class Observers final : public plan::StageObserver {
 public:
  // REQUIRES: the observer outlives this.
  void add(plan::StageObserver& observer) { all_.push_back(&observer); }

  // What to hand to whoever is observed: null if nobody looks, so that it need not say anything.
  plan::StageObserver* orNull() { return all_.empty() ? nullptr : this; }

  void onStage(const plan::StageEvent& event) override {
    for (auto* each : all_) each->onStage(event);
  }
  void onWait(const plan::WaitEvent& event) override {
    for (auto* each : all_) each->onWait(event);
  }

 private:
  std::vector<plan::StageObserver*> all_;
};

}  // namespace sluice::session
