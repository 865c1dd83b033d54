#include <sluice/algorithms/catalogue/registry.h>

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sluice/algorithms/dgc/dgc_options.h>
#include <sluice/algorithms/dgc/settings.h>
#include <sluice/algorithms/server/answering.h>
#include <sluice/base/options.h>

namespace sluice::algorithms {

// One line for each algorithm, in the order in which people read them. Each is defined in a file of
// its own.
// NOLINTBEGIN(cppcoreguidelines-macro-usage): one list for the declarations and the array
// clang-format off
#define SLUICE_ALGORITHMS(each) \
  each(kSluice) \
  each(kP3) \
  each(kSlicing) \
  each(kKvstore) \
  each(kKvstoreParts) \
  each(kMgp3) \
  each(kMgwfbp) \
  each(kWfbp) \
  each(kAllreduce) \
  each(kPipe) \
  each(kAsp) \
  each(kSsp) \
  each(kEasgd) \
  each(kGoSgd) \
  each(kAdPsgd)
// clang-format on

#define SLUICE_DECLARE(name) extern const Algorithm name;
#define SLUICE_ADDRESS(name) &name,
// NOLINTEND(cppcoreguidelines-macro-usage)
SLUICE_ALGORITHMS(SLUICE_DECLARE)

namespace {

constexpr std::array kAlgorithms{SLUICE_ALGORITHMS(SLUICE_ADDRESS)};

// Every program that has algorithms knows their options, before main() begins.
[[maybe_unused]] const bool kOptionsAreKnown = [] {
  base::addOptions(algorithmOptions());
  return true;
}();

// "sluice, wfbp, allreduce, asp, ssp"
std::string namesOfThoseWith(const base::Option& option) {
  std::vector<std::string_view> names;
  for (const Algorithm* algorithm : kAlgorithms) {
    if (algorithm->takes(option)) names.push_back(algorithm->name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

bool hasItsDefault(const base::Config& config, const base::Option& option) {
  if (option.kind == base::Kind::kSwitch) return config.isOn(option) == (option.fallback == "on");
  return config.value(option).text == option.fallback;
}

// Variables and files may be there for several jobs, so only options that this job itself was given
// count.
Status rejectOptionsOfOthers(const base::Config& config, const Algorithm& algorithm) {
  for (const base::Option* option : algorithmOptions()) {
    const bool isGiven = config.value(*option).source == base::Source::kFlag;
    const bool isJudged = option == &option::kSurviveLoss;  // by rejectIgnoredOptions()
    if (!isGiven || isJudged || hasItsDefault(config, *option) || algorithm.takes(*option))
      continue;
    return {Code::kInvalidArgument, fmt::format("{} takes no --{}; it is for {}", algorithm.name,
                                                option->name, namesOfThoseWith(*option))};
  }
  return base::ok();
}

}  // namespace

bool Algorithm::takes(const base::Option& option) const {
  return std::ranges::find(options, &option) != options.end();
}

std::span<const Algorithm* const> algorithms() {
  return kAlgorithms;
}

std::vector<const base::Option*> algorithmOptions() {
  std::vector<const base::Option*> all;
  for (const Algorithm* algorithm : kAlgorithms) {
    for (const base::Option* option : algorithm->options) {
      if (std::ranges::find(all, option) == all.end()) all.push_back(option);
    }
  }
  return all;
}

Status rejectIgnoredOptions(const base::Config& config, const plan::PlanSpec& chosen) {
  SLUICE_ASSIGN_OR_RETURN(const Algorithm* algorithm, findAlgorithm(chosen.strategy));
  // Algorithms that do not keep ranks in step go on without a lost rank anyway.
  if (config.isOn(option::kSurviveLoss) && algorithm->keepsRanksEqual) {
    return {Code::kInvalidArgument,
            fmt::format(
                "{} keeps the ranks in step and cannot go on without one; --survive-loss is for {}",
                chosen.strategy, namesOfThoseWith(option::kSurviveLoss))};
  }
  if (config.isOn(option::kDgc) && !isSparse(chosen)) {
    return {Code::kInvalidArgument, fmt::format("{} cannot compress with --dgc; it is for {}",
                                                chosen.strategy, namesOfThoseWith(option::kDgc))};
  }
  return rejectOptionsOfOthers(config, *algorithm);
}

Result<const Algorithm*> findAlgorithm(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Algorithm* algorithm : algorithms()) {
    if (algorithm->name == name || (!name.empty() && algorithm->alias == name)) return algorithm;
    names.push_back(algorithm->name);
  }
  return Status(Code::kInvalidArgument, fmt::format("there is no algorithm '{}'; use one of {}",
                                                    name, fmt::join(names, ", ")));
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

}  // namespace sluice::algorithms
