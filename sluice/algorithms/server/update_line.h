// The time that updates take at a server, for measurements: bytes / --update-rate for each slice,
// one after the other. The papers' servers are slower than this machine's, and a pipeline of push,
// update and publication shows only where an update takes time. The sum and the step themselves are
// made at once; their answer waits in line.
//
// The end of an update is a point on a timeline and a timer waits for it: the loop never sleeps, and
// late timers do not add up. Slices wait in the order of the algorithm's sends, so p3's server takes
// the most urgent first, as P3Server does.
//
// Belongs to the fabric's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include <sluice/base/loop.h>
#include <sluice/base/units.h>
#include <sluice/data/plan/plan.h>
#include <sluice/transport/queue/send.h>

namespace sluice::algorithms {

class UpdateLine final {
 public:
  // REQUIRES: the loop outlives this.
  UpdateLine(base::Loop& loop, base::Rate rate, queue::SendOrder order);

  // Runs `done` when the update of so many bytes ends: at once, if updates take no time.
  void add(const plan::Slice& slice, Step step, uint64_t bytes, std::function<void()> done);

 private:
  struct Update {
    uint64_t bytes;
    std::function<void()> done;
  };

  void begin(TimePoint start);
  void end(const std::function<void()>& done, TimePoint end);

  base::Loop& loop_;
  const base::Rate rate_;
  const queue::SendOrder order_;
  std::map<queue::SendKey, Update> waiting_;
  uint64_t arrivals_ = 0;
  bool isBusy_ = false;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>();  // for timers
};

}  // namespace sluice::algorithms
