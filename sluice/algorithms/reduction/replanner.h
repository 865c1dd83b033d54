// Re-merges mgwfbp's groups from measured times. At a *boundary*, the end of every so many steps,
// the ranks tell each other what they have measured; each makes a plan of it, and they compare the
// plans' hashes. So all ranks change to the same groups after the same step, or all keep the old
// ones. Belongs to its strategy's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <sluice/algorithms/context.h>
#include <sluice/algorithms/reduction/reduction_settings.h>
#include <sluice/algorithms/reduction/step_timer.h>
#include <sluice/data/collective/collective.h>
#include <sluice/data/timing/drift.h>

namespace sluice::algorithms {

class Replanner final {
 public:
  // The plan's groups were merged by `costs`. REQUIRES: context and collective outlive this.
  Replanner(const Context& context, collective::Collective& collective, timing::Costs costs);

  void ready(TensorId tensor, Step step);                  // its gradient is here
  void reduced(size_t group, Step step, TimePoint begun);  // and so is its mean

  // Returns the step at whose end the ranks agree. REQUIRES: no gate opens for it before, since
  // others may use the collective then.
  Step boundary() const { return boundary_; }
  // Continues training at this step: the next boundary is not before it.
  void startAt(Step first);
  // True iff it is a call by which the ranks agree at that boundary.
  bool isOwn(const collective::Ticket& ticket) const {
    return ticket == this->ticket(0) || ticket == this->ticket(1);
  }

  // Agrees on the groups, once the boundary's last mean is here. When `done` runs, settings() are
  // those to go on with, and the boundary is the next one.
  void agree(collective::Done done);
  const ReductionSettings& settings() const { return settings_; }

  std::string describeWait() const;  // of agree(); empty: it is not under way

 private:
  using Numbers = std::vector<double>;
  using Told = std::function<void(const Result<std::vector<Numbers>>&)>;  // by rank
  struct Choice {
    plan::Plan plan;
    std::string reason;  // empty: it is the plan there was
  };
  void tell(uint32_t round, const Numbers& own, Told told);
  Choice choose(const std::vector<Numbers>& measured);
  void conclude(const Choice& choice, const std::vector<Numbers>& hashes);
  collective::Ticket ticket(uint32_t round) const;
  bool isMeasured(Step step) const;

  const Context& context_;
  collective::Collective& collective_;
  plan::Plan plan_;  // agreed on last
  ReductionSettings settings_;
  timing::Costs planned_;  // its groups were merged by these
  timing::Costs costs_;    // as far as is known by now
  StepTimer timer_;
  Step boundary_;
  Numbers board_;  // the message of all ranks, on its way
};

}  // namespace sluice::algorithms
