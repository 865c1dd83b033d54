#include <sluice/algorithms/dgc/settings.h>

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include <sluice/algorithms/dgc/dgc_options.h>
#include <sluice/algorithms/reduction/reduction_options.h>
#include <sluice/base/check.h>
#include <sluice/base/options.h>
#include <sluice/base/units.h>
#include <sluice/data/codec/dgc.h>
#include <sluice/data/optimizer/optimizers.h>

namespace sluice::algorithms {
namespace {

constexpr const char* kSparsitySetting = "dgc-sparsity";
constexpr const char* kWarmUpSetting = "dgc-warm-up";
constexpr const char* kClipSetting = "dgc-clip";
constexpr const char* kMaskingSetting = "dgc-masking";
constexpr const char* kRestSetting = "error-feedback";
constexpr const char* kDenseSetting = "dgc-dense-below";

}  // namespace

bool isSparse(const plan::PlanSpec& spec) {
  return spec.settings.contains(kSparsitySetting);
}

Status chooseDgc(const base::Config& config, plan::PlanSpec& spec) {
  const double sparsity = config.number(option::kDgcSparsity);
  const double clip = config.number(option::kDgcClip);
  const int64_t warmUp = config.integer(option::kDgcWarmUp);
  const int64_t denseBelow = config.integer(option::kDgcDenseBelow);
  if (!(sparsity >= 0 && sparsity <= 1))
    return {Code::kInvalidArgument, fmt::format("--dgc-sparsity is {}; give 0 to 1", sparsity)};
  if (!(clip >= 0) || warmUp < 0 || denseBelow < 0)
    return {Code::kInvalidArgument,
            "--dgc-clip, --dgc-warm-up and --dgc-dense-below must not be negative"};
  if (config.text(option::kCodec) != "none")
    return {Code::kInvalidArgument, "give --codec or --dgc, not both"};
  for (const auto& tensor : spec.model.tensors) {
    if (tensor.dtype != DType::kF32)
      return {
          Code::kInvalidArgument,
          fmt::format("tensor {} is not f32, the only type that --dgc takes", tensor.toString())};
  }
  // Settings travel in the plan as text, and ranks compare the plan's hash. A double is written
  // with as many digits as its bits need, so that every rank reads the same number.
  spec.settings[kSparsitySetting] = fmt::format("{}", sparsity);
  spec.settings[kWarmUpSetting] = std::to_string(warmUp);
  spec.settings[kClipSetting] = fmt::format("{}", clip);
  spec.settings[kMaskingSetting] = config.isOn(option::kDgcMasking) ? "on" : "off";
  spec.settings[kRestSetting] = config.isOn(option::kErrorFeedback) ? "on" : "off";
  spec.settings[kDenseSetting] = std::to_string(denseBelow);
  return base::ok();
}

double sgdValue(std::span<const double> values, std::string_view name) {
  const auto known = optimizer::sgd().hyperparameters();
  const auto at = std::ranges::find(known, name, &optimizer::Hyperparameter::name);
  SLUICE_CHECK(at != known.end(), name);
  return values[static_cast<size_t>(at - known.begin())];
}

Status checkDgcValues(std::span<const double> values, const optimizer::OptimizerSpec& atStart) {
  if (sgdValue(values, "nesterov") != 0 || sgdValue(values, "dampening") != 0)
    return {Code::kInvalidArgument,
            "--dgc applies the momentum itself; leave out nesterov and dampening"};
  if (sgdValue(values, "momentum") != sgdValue(atStart.values, "momentum"))
    return {Code::kInvalidArgument,
            "--dgc applies the momentum itself, so that momentum cannot change during training"};
  return base::ok();
}

Result<DgcSettings> settingsOfDgc(const Context& context, size_t workersPerStep) {
  if (context.update.optimizer != &optimizer::sgd()) {
    return Status(
        Code::kInvalidArgument,
        "--dgc makes the step itself, by SGD: give sgd as the update (its momentum is made before "
        "compression; in PyTorch: torch.optim.SGD and server_optimizer=True)");
  }
  SLUICE_RETURN_IF_ERROR(checkDgcValues(context.update.values, context.update));
  const auto& chosen = context.plan.spec().settings;
  DgcSettings settings;
  SLUICE_ASSIGN_OR_RETURN(settings.sparsity, base::parseNumber(chosen.at(kSparsitySetting)));
  SLUICE_ASSIGN_OR_RETURN(const int64_t warmUp, base::parseInteger(chosen.at(kWarmUpSetting)));
  settings.stepsPerStage = static_cast<uint64_t>(warmUp);
  SLUICE_ASSIGN_OR_RETURN(const double clip, base::parseNumber(chosen.at(kClipSetting)));
  // Nobody sees the sum of all gradients before they are compressed, so each worker clips its
  // own. The limit is for the mean of all that one step takes in.
  settings.clip = codec::clipOfEach(clip, workersPerStep);
  settings.masksMomentum = chosen.at(kMaskingSetting) == "on";
  settings.keepsRest = chosen.at(kRestSetting) == "on";
  SLUICE_ASSIGN_OR_RETURN(const int64_t denseBelow, base::parseInteger(chosen.at(kDenseSetting)));
  settings.denseBelow = static_cast<uint64_t>(denseBelow);
  return settings;
}

}  // namespace sluice::algorithms
