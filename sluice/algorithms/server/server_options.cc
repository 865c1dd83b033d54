#include <sluice/algorithms/server/server_options.h>

#include <sluice/algorithms/slices.h>
#include <sluice/base/options.h>

namespace sluice::algorithms {
namespace {

constexpr const char* kOverlapSetting = "overlap";
constexpr const char* kEarlySetting = "sends-before-word";

}  // namespace

base::Rate updateRate(const base::Config& config) {
  const base::Rate rate = config.rate(option::kUpdateRate);
  return rate.bitsPerSecond == 0 ? rate : base::Rate{shrunk(config, rate.bitsPerSecond)};
}

void chooseOverlap(const base::Config& config, plan::PlanSpec& spec) {
  if (config.isOn(option::kNoOverlap)) spec.settings[kOverlapSetting] = "no";
}

bool overlaps(const plan::PlanSpec& spec) {
  return !spec.settings.contains(kOverlapSetting);
}

Status chooseEarlyParts(const base::Config& config, plan::PlanSpec& spec) {
  if (!config.isOn(option::kOverlap)) return base::ok();
  if (!overlaps(spec)) {
    return {Code::kInvalidArgument,
            "--overlap and --no-overlap contradict each other; leave out one"};
  }
  spec.settings[kEarlySetting] = "yes";
  return base::ok();
}

bool sendsBeforeWord(const plan::PlanSpec& spec) {
  return spec.settings.contains(kEarlySetting);
}

Status chooseSharded(const base::Config& config, uint64_t preferred, plan::PlanSpec& spec) {
  chooseOverlap(config, spec);
  const bool isByLayer = config.text(option::kPlacement) == "layers";
  return chooseSlices(config, isByLayer ? plan::Placement::kLayers : plan::Placement::kSharded,
                      preferred, spec);
}

}  // namespace sluice::algorithms
