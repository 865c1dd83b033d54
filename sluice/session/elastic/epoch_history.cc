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
