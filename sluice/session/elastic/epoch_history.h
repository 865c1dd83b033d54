// The epochs in which a session has summed steps: enough to repeat them in one process, and to know
// when every member has entered one. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <sluice/base/mutex.h>
#include <sluice/join/membership/talk/epoch_view.h>

namespace sluice::session {

struct EpochLog {
  membership::EpochView view;
  std::vector<uint64_t> firstSteps;  // by SliceId: the first step that is summed in this epoch
  uint64_t lastFirstStep = 0;        // the highest of them
};

class EpochHistory final {
 public:
  // An epoch begins. REQUIRES: firstSteps has as many as before, and at least one.
  void add(const membership::EpochView& view, const std::vector<Step>& firstSteps);

  // Returns the newest epoch that every member has entered by its step number `steps`, whatever it
  // knows: all members that have begun so many steps get the same answer. Empty: the first epoch.
  std::optional<membership::EpochView> agreedBy(uint64_t steps) const;

  // Returns the first epoch and those in which something was summed of the first `steps` steps, which
  // this member has begun. Members that have made as many have the same.
  std::vector<EpochLog> all(uint64_t steps) const;

 private:
  base::Guarded<std::vector<EpochLog>> epochs_;
};

}  // namespace sluice::session
