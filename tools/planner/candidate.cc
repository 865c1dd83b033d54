#include <tools/planner/candidate.h>

#include <array>
#include <set>

#include <fmt/format.h>

#include <sluice/algorithms/catalogue/registry.h>
#include <sluice/algorithms/dgc/dgc_options.h>
#include <sluice/algorithms/reduction/reduction_options.h>
#include <sluice/base/options.h>

namespace sluice::planner {
namespace {

using Settings = std::vector<Candidate::Setting>;

constexpr std::array kSliceSizes{"12500", "50000", "200000"};
constexpr std::array kMethods{"ring", "halving-doubling"};
constexpr std::array kCodecs{"fp16", "int8"};

// Returns the settings to try with an algorithm, the defaults first. Codecs are tried with the
// default method only: methods differ in their order, not in their bytes.
std::vector<Settings> variationsOf(const algorithms::Algorithm& algorithm) {
  std::vector<Settings> all{{}};
  // Workers that do not keep step hardly wait for messages, whatever their size.
  if (algorithm.keepsRanksEqual) {
    for (const char* size : kSliceSizes) all.push_back({{&option::kSliceElements, size}});
  }
  if (algorithm.takes(option::kCollective)) {
    for (const char* method : kMethods) all.push_back({{&option::kCollective, method}});
  }
  if (algorithm.takes(option::kMerge)) all.push_back({{&option::kMerge, "paper"}});
  if (algorithm.takes(option::kCodec)) {
    for (const char* codec : kCodecs) all.push_back({{&option::kCodec, codec}});
  }
  if (algorithm.takes(option::kDgc)) all.push_back({{&option::kDgc, "on"}});
  return all;
}

bool has(const Settings& settings, const base::Option& option) {
  return std::ranges::any_of(settings, [&](const auto& one) { return one.first == &option; });
}

Exactness exactnessOf(const algorithms::Algorithm& algorithm, const Settings& settings) {
  if (!algorithm.keepsRanksEqual || has(settings, option::kCodec) || has(settings, option::kDgc))
    return Exactness::kLossy;
  if (algorithm.delaysResults) return Exactness::kDelayed;
  return has(settings, option::kCollective) ? Exactness::kOtherOrder : Exactness::kSameBits;
}

}  // namespace

std::string_view name(Exactness exactness) {
  constexpr std::array<std::string_view, kExactnesses> kNames{"same bits", "exact in another order",
                                                              "delayed", "lossy or stale"};
  return kNames[static_cast<size_t>(exactness)];
}

std::string Candidate::name() const {
  std::string text(algorithm->name);
  for (const auto& [option, value] : settings) text += fmt::format(" --{} {}", option->name, value);
  return text;
}

std::string Candidate::accuracy() const {
  std::string text(algorithm->accuracy);
  const auto add = [&](std::string_view more) {
    if (!text.empty()) text += "; ";
    text += more;
  };
  if (has(settings, option::kDgc)) add("DGC: 3.1 points less in a short study of 4 workers");
  if (has(settings, option::kCodec)) add("codecs: 0.1 points less with pipe and 4 workers");
  return text;
}

Status Candidate::applyTo(base::Config& config) const {
  SLUICE_RETURN_IF_ERROR(config.set(option::kAlgorithm, algorithm->name));
  for (const auto& [option, value] : settings) SLUICE_RETURN_IF_ERROR(config.set(*option, value));
  return base::ok();
}

Result<plan::Plan> planOf(const algorithms::Algorithm& algorithm, const base::Config& config,
                          const Model& model, const plan::Roles& roles) {
  plan::PlanSpec spec;
  spec.model = model;
  spec.roles = roles;
  spec.strategy = algorithm.name;
  SLUICE_RETURN_IF_ERROR(algorithm.choose(config, spec));
  return plan::Plan::make(std::move(spec));
}

Result<std::vector<Candidate>> candidates(const base::Config& config, const Model& model,
                                          const plan::Roles& roles) {
  std::vector<Candidate> found;
  for (const algorithms::Algorithm* algorithm : algorithms::algorithms()) {
    std::set<plan::Hash> seen;
    for (const Settings& settings : variationsOf(*algorithm)) {
      Candidate candidate{algorithm, settings, exactnessOf(*algorithm, settings)};
      base::Config own = config;
      SLUICE_RETURN_IF_ERROR(candidate.applyTo(own));
      SLUICE_ASSIGN_OR_RETURN(const plan::Plan plan, planOf(*algorithm, own, model, roles));
      if (seen.insert(plan.hash()).second) found.push_back(std::move(candidate));
    }
  }
  return found;
}

}  // namespace sluice::planner
