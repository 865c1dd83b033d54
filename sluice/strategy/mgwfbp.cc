// MG-WFBP: neighbouring tensors are merged where a message of their own would cost more than waiting for the
// next one. Which, follows from the layers' times and from what a reduction of M bytes costs, a + bM.
#include <fmt/format.h>

#include <sluice/base/options.h>
#include <sluice/plan/bounds.h>
#include <sluice/strategy/algorithms.h>
#include <sluice/strategy/reduction.h>

namespace sluice::strategy {
namespace {

// Without a profile a layer is taken to compute for as long as it is large, two thirds of it in backward.
std::vector<plan::Layer> layersBySize(const plan::Model& model, double computeSeconds) {
  std::vector<plan::Layer> layers;
  for (const auto& tensor : model.tensors) {
    const double seconds =
        computeSeconds * static_cast<double>(tensor.elements) / static_cast<double>(model.elements());
    layers.push_back({seconds / 3, seconds * 2 / 3, static_cast<double>(tensor.bytes())});
  }
  return layers;
}

Result<std::vector<plan::Layer>> layersOf(const Config& config, const plan::Model& model) {
  const double computeSeconds = base::seconds(config.duration(option::kComputeTime));
  const std::string& name = config.text(option::kLayerTimes);
  if (name.empty()) return layersBySize(model, computeSeconds);
  SLUICE_ASSIGN_OR_RETURN(const plan::Profile profile, plan::findProfile(name));
  if (profile.tensors.size() != model.tensors.size()) {
    return Status(Code::kInvalidArgument,
                  fmt::format("profile '{}' has {} tensors, the model {}: measure this model's", name,
                              profile.tensors.size(), model.tensors.size()));
  }
  auto layers = plan::layersOf(profile, computeSeconds);
  for (size_t t = 0; t < layers.size(); ++t) layers[t].bytes = static_cast<double>(model.tensors[t].bytes());
  return layers;
}

Status chooseMgwfbp(const Config& config, plan::PlanSpec& spec) {
  SLUICE_ASSIGN_OR_RETURN(const auto layers, layersOf(config, spec.model));
  plan::WireCost wire = plan::shardedWire(spec.roles.world, config.rate(option::kReductionRate));
  wire.start = base::seconds(config.duration(option::kReductionStart));
  const auto merging = config.text(option::kMerge) == "paper" ? plan::mergeByAlgorithm1(layers, wire)
                                                              : plan::mergeExactly(layers, wire);
  return chooseReduction(config, merging.groups, spec);
}

}  // namespace

const Algorithm kMgwfbp{"mgwfbp", "all-reduces of tensors merged by measured times (MG-WFBP)", chooseMgwfbp,
                        makeReduction};

}  // namespace sluice::strategy
