// Several observers of the path of slices as one. Filled before training, then only read.
#pragma once

#include <vector>

#include <sluice/observer.h>

namespace sluice::session {

class Observers final : public StageObserver {
 public:
  // REQUIRES: the observer outlives this.
  void add(StageObserver& observer) { all_.push_back(&observer); }

  // Returns the observer to hand out: null if the list is empty, so that nothing needs to be
  // reported.
  StageObserver* orNull() { return all_.empty() ? nullptr : this; }

  void onStage(const StageEvent& event) override {
    for (auto* each : all_) each->onStage(event);
  }
  void onWait(const WaitEvent& event) override {
    for (auto* each : all_) each->onWait(event);
  }

 private:
  std::vector<StageObserver*> all_;
};

}  // namespace sluice::session
