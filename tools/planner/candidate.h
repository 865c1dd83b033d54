// The plans that compete: every algorithm with every size of slices, method of reduction, way of
// merging and codec that it takes. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sluice/algorithms/catalogue/algorithm.h>
#include <sluice/base/config.h>
#include <sluice/data/plan/plan.h>

namespace sluice::planner {

// The results of a plan, compared with those of one process. Earlier ones are chosen first.
enum class Exactness : uint8_t {
  kSameBits,    // sums in rank order
  kOtherOrder,  // exact, but sums in another order
  kDelayed,     // a gradient is used in a later step
  kLossy        // parts of gradients are lost, or are of other parameters
};
inline constexpr int kExactnesses = 4;
std::string_view name(Exactness exactness);  // "same bits"

// The class of plans that may be chosen without asking the user.
inline bool isExact(Exactness exactness) {
  return exactness <= Exactness::kOtherOrder;
}

struct Candidate {
  using Setting = std::pair<const base::Option*, std::string>;

  const algorithms::Algorithm* algorithm = nullptr;
  std::vector<Setting> settings{};  // that differ from their defaults
  Exactness exactness = Exactness::kSameBits;

  std::string name() const;  // "wfbp --collective ring"
  // Returns what the study says of its accuracy; empty if it loses nothing.
  std::string accuracy() const;
  Status applyTo(base::Config& config) const;
};

// Returns the candidates for this model and these roles, each plan once: settings that change
// nothing are left out. `config` has the costs that merging goes by.
Result<std::vector<Candidate>> candidates(const base::Config& config, const Model& model,
                                          const plan::Roles& roles);

// Returns the plan that all ranks would agree on. `config` has the candidate's settings.
Result<plan::Plan> planOf(const algorithms::Algorithm& algorithm, const base::Config& config,
                          const Model& model, const plan::Roles& roles);

}  // namespace sluice::planner
