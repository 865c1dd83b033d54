#include <sluice/session/elastic/epoch_history.h>

#include <algorithm>

namespace sluice::session {

// Nothing was summed in an epoch if the next one begins with the same steps. Other members may not
// have begun it at all, so it does not count.
void EpochHistory::add(const membership::EpochView& view, const std::vector<Step>& firstSteps) {
  EpochLog epoch{.view = view, .firstSteps = {}};
  for (const Step step : firstSteps) epoch.firstSteps.push_back(index(step));
  epoch.lastFirstStep = *std::ranges::max_element(epoch.firstSteps);
  epochs_.with([&](std::vector<EpochLog>& epochs) {
    if (epochs.size() > 1 && epochs.back().firstSteps == epoch.firstSteps) epochs.pop_back();
    epochs.push_back(std::move(epoch));
  });
}

// Members that are lost when all steps are made are missed by some of the others, and not by those
// that have left.
std::vector<EpochLog> EpochHistory::all(uint64_t steps) const {
  return epochs_.with([&](std::vector<EpochLog> epochs) {
    const auto isEmpty = [&](const EpochLog& epoch) {
      return *std::ranges::min_element(epoch.firstSteps) >= steps;
    };
    while (epochs.size() > 1 && isEmpty(epochs.back())) epochs.pop_back();
    return epochs;
  });
}

// Some slice of step `last` is summed in the epoch. A member that has begun step last + 2 has had all
// results of step `last`, so it is in the epoch.
std::optional<membership::EpochView> EpochHistory::agreedBy(uint64_t steps) const {
  return epochs_.with(
      [&](const std::vector<EpochLog>& epochs) -> std::optional<membership::EpochView> {
        const auto isAgreed = [&](const EpochLog& epoch) {
          return epoch.lastFirstStep + 2 <= steps;
        };
        const auto found = std::find_if(epochs.rbegin(), epochs.rend(), isAgreed);
        return found == epochs.rend() ? std::nullopt : std::optional(found->view);
      });
}

}  // namespace sluice::session
