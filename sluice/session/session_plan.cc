#include <sluice/session/session_plan.h>

#include <utility>

#include <fmt/format.h>

#include <sluice/algorithms/catalogue/registry.h>
#include <sluice/algorithms/dgc/dgc_options.h>
#include <sluice/base/options.h>

namespace sluice::session {
namespace {

// A fabric, its protection and the roles of ranks belong to the job.
Status applySettings(const Config::Values& settings, const algorithms::Algorithm& algorithm,
                     base::Config& config) {
  for (const auto& [name, value] : settings) {
    SLUICE_ASSIGN_OR_RETURN(const base::Option* option, base::knownOption(name));
    if (option != &option::kSliceElements && option != &option::kCredit &&
        !algorithm.takes(*option)) {
      return {Code::kInvalidArgument,
              fmt::format("a session of {} cannot have its own {}; give it to the whole job",
                          algorithm.name, name)};
    }
    SLUICE_RETURN_IF_ERROR(config.set(*option, value));
  }
  return base::ok();
}

}  // namespace

Result<SessionPlan> makePlan(const SessionOptions& options, const optimizer::OptimizerSpec& update,
                             const JobParts& job) {
  // A session may choose its own algorithm and some options, but not what the job shares.
  // Options of the job's own algorithm are checked only if the session uses it: with another
  // one they are not meant for it.
  base::Config config = job.config();
  const std::string& wanted = options.algorithm;
  if (!wanted.empty())
    SLUICE_RETURN_IF_ERROR(config.set(option::kDgc, "off"));  // for the job's own algorithm only
  SLUICE_ASSIGN_OR_RETURN(
      const auto* algorithm,
      algorithms::readAlgorithm(wanted.empty() ? job.config().text(option::kAlgorithm) : wanted,
                                config));
  SLUICE_RETURN_IF_ERROR(applySettings(options.settings, *algorithm, config));
  plan::PlanSpec spec;
  spec.model = options.model;
  spec.strategy = algorithm->name;
  spec.settings["update"] = optimizer::canonicalText(update);
  SLUICE_ASSIGN_OR_RETURN(spec.roles,
                          plan::parseRoles(config.text(option::kServers), job.firstWorldSize()));
  SLUICE_RETURN_IF_ERROR(algorithm->choose(config, spec));
  if (wanted.empty()) SLUICE_RETURN_IF_ERROR(algorithms::rejectIgnoredOptions(config, spec));
  SLUICE_ASSIGN_OR_RETURN(auto plan, plan::Plan::make(std::move(spec)));
  return SessionPlan{std::move(config), std::move(plan)};
}

}  // namespace sluice::session
