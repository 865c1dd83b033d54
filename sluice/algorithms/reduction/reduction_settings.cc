#include <sluice/algorithms/reduction/reduction_settings.h>

#include <fmt/format.h>

#include <sluice/algorithms/reduction/reduction_options.h>
#include <sluice/base/options.h>
#include <sluice/base/text.h>
#include <sluice/base/units.h>
#include <sluice/data/collective/method_costs.h>

namespace sluice::algorithms {
namespace {

constexpr const char* kDelay = "delay";
constexpr const char* kWarmUp = "warm-up";
constexpr const char* kOrder = "order";
constexpr const char* kReplan = "replan";

// Returns one method's name for all groups, or with `auto` one for each group.
Result<std::string> methodsText(const base::Config& config, const Model& model,
                                std::span<const timing::Group> groups) {
  if (config.text(option::kCollective) != "auto") return config.text(option::kCollective);
  SLUICE_ASSIGN_OR_RETURN(const auto costs,
                          collective::parseMethodCosts(config.text(option::kCollectiveCosts)));
  std::string text;
  for (const auto& [first, last] : groups) {
    uint64_t bytes = 0;
    for (size_t t = first; t <= last; ++t) bytes += model.tensors[t].bytes();
    text += fmt::format("{}{}", text.empty() ? "" : ",",
                        collective::name(collective::cheapest(costs, static_cast<double>(bytes))));
  }
  return text;
}

}  // namespace

Result<ReductionSettings> settingsOf(const plan::PlanSpec& spec) {
  const auto setting = [&](const char* name) { return spec.settings.at(name); };
  ReductionSettings settings;
  // The settings come from the plan, that is, possibly from a file or another rank. Groups are
  // parsed and checked; numbers such as the delay were written by this program and are covered
  // by the plan's hash.
  SLUICE_ASSIGN_OR_RETURN(settings.groups,
                          parseGroups(setting("groups"), spec.model.tensors.size()));
  const std::string methods = setting("collective");
  for (const std::string_view name : base::split(methods, ',')) {
    SLUICE_ASSIGN_OR_RETURN(const auto method, collective::parseMethod(name));
    settings.methods.push_back(method);
  }
  if (settings.methods.size() == 1)
    settings.methods.resize(settings.groups.size(), settings.methods.front());
  if (settings.methods.size() != settings.groups.size())
    return Status(Code::kInvalidArgument,
                  "the plan does not name one collective method for each group of tensors");
  SLUICE_ASSIGN_OR_RETURN(settings.codec, codec::findCodec(setting("codec")));
  settings.keepsRest = setting("error-feedback") == "on";
  settings.atOnce = std::stoul(setting("reductions"));
  if (spec.settings.contains(kDelay)) {
    settings.delay = std::stoul(setting(kDelay));
    settings.warmUp = std::stoul(setting(kWarmUp));
  }
  if (spec.settings.contains(kReplan)) settings.replanSteps = std::stoul(setting(kReplan));
  settings.byPriority = spec.settings.contains(kOrder);
  // Messages overtake each other only once their groups are under way (urgent_fabric.h), so no
  // group may wait for its turn.
  if (settings.byPriority) settings.atOnce = settings.groups.size();
  return settings;
}

void setByPriority(plan::PlanSpec& spec) {
  spec.settings[kOrder] = "priority";
}

void setDelay(plan::PlanSpec& spec, size_t delay, uint64_t warmUp) {
  spec.settings[kDelay] = std::to_string(delay);
  spec.settings[kWarmUp] = std::to_string(warmUp);
}

void setReplanSteps(plan::PlanSpec& spec, uint64_t steps) {
  spec.settings[kReplan] = std::to_string(steps);
}

Status setGroups(const base::Config& config, std::span<const timing::Group> groups,
                 plan::PlanSpec& spec) {
  spec.settings["groups"] = groupsText(groups);
  SLUICE_ASSIGN_OR_RETURN(spec.settings["collective"], methodsText(config, spec.model, groups));
  return base::ok();
}

std::string groupsText(std::span<const timing::Group> groups) {
  std::string text;
  for (const timing::Group& group : groups)
    text += fmt::format("{}{}-{}", text.empty() ? "" : ",", group.first, group.last);
  return text;
}

Result<std::vector<timing::Group>> parseGroups(const std::string& text, size_t tensors) {
  std::vector<timing::Group> groups;
  // Groups must follow each other without a gap and end with the last tensor: each tensor is in
  // exactly one group, in the order of the model.
  size_t next = 0;
  for (const std::string_view group : base::split(text, ',')) {
    const auto ends = base::split(group, '-');
    if (ends.size() != 2) break;
    SLUICE_ASSIGN_OR_RETURN(const int64_t first, base::parseInteger(ends[0]));
    SLUICE_ASSIGN_OR_RETURN(const int64_t last, base::parseInteger(ends[1]));
    if (first != static_cast<int64_t>(next) || last < first) break;
    groups.push_back({static_cast<size_t>(first), static_cast<size_t>(last)});
    next = static_cast<size_t>(last) + 1;
  }
  if (next != tensors)
    return Status(Code::kInvalidArgument,
                  fmt::format("'{}' is not a grouping of {} tensors", text, tensors));
  return groups;
}

}  // namespace sluice::algorithms
