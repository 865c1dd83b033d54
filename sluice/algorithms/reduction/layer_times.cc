#include <sluice/algorithms/reduction/layer_times.h>

#include <fmt/format.h>

#include <sluice/algorithms/reduction/reduction_options.h>
#include <sluice/algorithms/reduction/reduction_settings.h>
#include <sluice/base/options.h>

namespace sluice::algorithms {
namespace {

std::vector<timing::Layer> layersBySize(const Model& model, double computeSeconds) {
  std::vector<timing::Layer> layers;
  for (const auto& tensor : model.tensors) {
    const double seconds = computeSeconds * static_cast<double>(tensor.elements) /
                           static_cast<double>(model.elements());
    layers.push_back({seconds / 3, seconds * 2 / 3, static_cast<double>(tensor.bytes())});
  }
  return layers;
}

Result<std::vector<timing::Layer>> layerTimes(const base::Config& config, const Model& model) {
  const double computeSeconds = base::seconds(config.duration(option::kComputeTime));
  const std::string& name = config.text(option::kLayerTimes);
  if (name.empty()) return layersBySize(model, computeSeconds);
  SLUICE_ASSIGN_OR_RETURN(const timing::Profile profile, timing::findProfile(name));
  if (profile.tensors.size() != model.tensors.size()) {
    return Status(Code::kInvalidArgument,
                  fmt::format("the profile '{}' has {} tensors, but the model has {}; measure this "
                              "model with 'sluice profile'",
                              name, profile.tensors.size(), model.tensors.size()));
  }
  auto layers = timing::layersOf(profile, computeSeconds);
  // The profile says when gradients come; it may have been measured with another type of
  // parameters. The bytes are those of this model, since they are what travels.
  for (size_t t = 0; t < layers.size(); ++t)
    layers[t].bytes = static_cast<double>(model.tensors[t].bytes());
  return layers;
}

}  // namespace

Result<timing::Costs> reductionCosts(const base::Config& config, const Model& model,
                                     const plan::Roles& roles) {
  SLUICE_ASSIGN_OR_RETURN(auto layers, layerTimes(config, model));
  timing::WireCost wire = timing::shardedWire(roles.world, config.rate(option::kReductionRate));
  wire.start = base::seconds(config.duration(option::kReductionStart));
  return timing::Costs{.layers = std::move(layers), .wire = wire};
}

Result<std::optional<double>> plannedSeconds(const base::Config& config,
                                             const plan::PlanSpec& spec) {
  if (!spec.settings.contains("groups")) return std::optional<double>();
  SLUICE_ASSIGN_OR_RETURN(const ReductionSettings settings, settingsOf(spec));
  SLUICE_ASSIGN_OR_RETURN(const timing::Costs costs,
                          reductionCosts(config, spec.model, spec.roles));
  const auto& [layers, wire] = costs;
  if (settings.byPriority)
    return std::optional(timing::prioritySeconds(layers, wire, settings.groups));
  // No formula of timing/ describes reductions that overlap each other or wait for several
  // steps, so there is no number rather than a wrong one.
  if (settings.atOnce > 1 || settings.delay > 1) return std::optional<double>();
  if (settings.delay == 1)
    return std::optional(timing::pipeBound(layers, wire, /*updateSeconds=*/0));
  return std::optional(timing::iterationSeconds(layers, wire, settings.groups));
}

}  // namespace sluice::algorithms
