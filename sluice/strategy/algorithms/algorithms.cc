#include <sluice/strategy/algorithms/algorithms.h>

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sluice/base/options.h>
#include <sluice/strategy/dgc/settings.h>

namespace sluice::strategy {

std::span<const Algorithm* const> algorithms() {
  static const std::array kAll{&kSluice, &kP3,    &kSlicing,   &kKvstore, &kMgp3,
                               &kMgwfbp, &kWfbp,  &kAllreduce, &kPipe,    &kAsp,
                               &kSsp,    &kEasgd, &kGoSgd,     &kAdPsgd};
  return kAll;
}

Status checkHeeded(const base::Config& config, const plan::PlanSpec& chosen) {
  SLUICE_ASSIGN_OR_RETURN(const Algorithm* algorithm, findAlgorithm(chosen.strategy));
  // The others that do not keep step go on anyway.
  if (config.isOn(option::kSurviveLoss) && algorithm->keepsRanksEqual) {
    return {Code::kInvalidArgument,
            fmt::format("{} keeps step, and so does not go on by --survive-loss; ssp "
                        "and easgd do",
                        chosen.strategy)};
  }
  if (!config.isOn(option::kDgc) || isSparse(chosen)) return base::ok();
  return {Code::kInvalidArgument,
          fmt::format("{} does not compress by --dgc; allreduce, sluice, asp and ssp do",
                      chosen.strategy)};
}

Result<const Algorithm*> findAlgorithm(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Algorithm* algorithm : algorithms()) {
    if (algorithm->name == name || (!name.empty() && algorithm->alias == name)) return algorithm;
    names.push_back(algorithm->name);
  }
  return Status(Code::kInvalidArgument,
                fmt::format("no algorithm '{}'; there are {}", name, fmt::join(names, ", ")));
}

Result<const Algorithm*> readAlgorithm(std::string_view text, base::Config& config) {
  const size_t colon = text.find(':');
  SLUICE_ASSIGN_OR_RETURN(const Algorithm* algorithm, findAlgorithm(text.substr(0, colon)));
  if (colon == std::string_view::npos) return algorithm;
  if (algorithm->argument == nullptr) {
    return Status(Code::kInvalidArgument,
                  fmt::format("'{}': {} takes nothing after a colon", text, algorithm->name));
  }
  SLUICE_RETURN_IF_ERROR(config.set(*algorithm->argument, text.substr(colon + 1)));
  return algorithm;
}

}  // namespace sluice::strategy
