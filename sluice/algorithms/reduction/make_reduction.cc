// Chooses the settings of reduction.h, on which all ranks must agree, and makes the engine for
// them.
#include <sluice/algorithms/reduction/reduction.h>

#include <optional>
#include <utility>

#include <fmt/format.h>

#include <sluice/algorithms/reduction/layer_times.h>
#include <sluice/algorithms/reduction/packing.h>
#include <sluice/algorithms/reduction/reduction_engine.h>
#include <sluice/algorithms/reduction/reduction_options.h>
#include <sluice/algorithms/slices.h>
#include <sluice/base/options.h>
#include <sluice/data/kernel/reduce.h>

namespace sluice::algorithms {

Status chooseReduction(const base::Config& config, std::span<const timing::Group> groups,
                       plan::PlanSpec& spec) {
  // Every rank takes part in an all-reduce with gradients of its own. A rank that only serves would
  // bring nothing, and the mean would still be divided by all ranks.
  if (spec.roles.workers.size() != spec.roles.world)
    return {Code::kInvalidArgument,
            fmt::format("{} has no servers: leave out --servers dedicated", spec.strategy)};
  for (const auto& tensor : spec.model.tensors) {
    if (config.text(option::kCodec) != "none" && tensor.dtype != DType::kF32)
      return {
          Code::kInvalidArgument,
          fmt::format("tensor {} is not f32, the only type that codecs take", tensor.toString())};
  }
  if (config.integer(option::kReductions) < 1)
    return {Code::kInvalidArgument, "--reductions must be at least 1, or nothing is ever reduced"};
  chooseWholeTensors(config, spec);  // slices are only names here
  // A group travels in one buffer of one type, so merged groups are cut wherever the type changes.
  // All that ranks must agree on goes into the plan, and they compare its hash before they train.
  SLUICE_RETURN_IF_ERROR(setGroups(config, splitByType(spec.model, groups), spec));
  spec.settings["codec"] = config.text(option::kCodec);
  spec.settings["error-feedback"] = config.isOn(option::kErrorFeedback) ? "on" : "off";
  spec.settings["reductions"] = std::to_string(config.integer(option::kReductions));
  return settingsOf(spec).status();
}

Result<std::unique_ptr<Strategy>> makeReduction(const Context& context) {
  if (context.updatesWaitForWord) {
    return Status(Code::kInvalidArgument,
                  "this algorithm has no servers whose updates could wait; use algorithm=sluice");
  }
  for (const auto& tensor : context.plan.model().tensors)
    SLUICE_RETURN_IF_ERROR(kernel::checkArithmetic(tensor.dtype));
  SLUICE_ASSIGN_OR_RETURN(auto settings, settingsOf(context.plan.spec()));
  if (settings.byPriority && context.collective != nullptr) {
    return Status(
        Code::kInvalidArgument,
        "a process group knows no priorities; use algorithm=mgwfbp with it, or leave it out");
  }
  std::optional<timing::Costs> costs;
  if (settings.replanSteps > 0 && context.fabric.worldSize() > 1) {
    SLUICE_ASSIGN_OR_RETURN(
        costs, reductionCosts(context.config, context.plan.model(), context.plan.roles()));
  }
  return std::unique_ptr<Strategy>(
      std::make_unique<Reduction>(context, std::move(settings), std::move(costs)));
}

}  // namespace sluice::algorithms
