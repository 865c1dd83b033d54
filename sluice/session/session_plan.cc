#include <sluice/session/session_plan.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <sluice/algorithms/catalogue/registry.h>
#include <sluice/algorithms/dgc/dgc_options.h>
#include <sluice/base/byte_io.h>
#include <sluice/base/options.h>
#include <sluice/base/text.h>
#include <sluice/base/units.h>

namespace sluice::session {
namespace {

constexpr size_t kNoteBytes = size_t{32} << 10;  // a store's values are small; a spec may be longer

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

Status tellSpec(const plan::PlanSpec& spec, const std::string& key, JobParts& job) {
  const std::string text = base::textOf(plan::serialise(spec));
  const size_t notes = (text.size() + kNoteBytes - 1) / kNoteBytes;
  // The number of notes is set first: a rank that hears the spec learns from it how many to
  // wait for. A note of the store holds 64 KiB at most, and the spec of a large model is
  // longer.
  SLUICE_RETURN_IF_ERROR(job.set(key + "/notes", std::to_string(notes)));
  for (size_t n = 0; n < notes; ++n) {
    SLUICE_RETURN_IF_ERROR(
        job.set(fmt::format("{}/{}", key, n), text.substr(n * kNoteBytes, kNoteBytes)));
  }
  return base::ok();
}

Result<plan::PlanSpec> hearSpec(const std::string& key, JobParts& job) {
  SLUICE_ASSIGN_OR_RETURN(const std::string count, job.get(key + "/notes"));
  SLUICE_ASSIGN_OR_RETURN(const int64_t notes, base::parseInteger(count));
  std::string text;
  for (int64_t n = 0; n < notes; ++n) {
    SLUICE_ASSIGN_OR_RETURN(const std::string note, job.get(fmt::format("{}/{}", key, n)));
    text += note;
  }
  return plan::deserialise(std::as_bytes(std::span(text)));
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

Status agreeOn(const plan::Plan& plan, const std::string& name, JobParts& job) {
  const std::string key = "plan/" + name;
  SLUICE_ASSIGN_OR_RETURN(const auto hashes, job.gather(key + "/hash", plan::toHex(plan.hash())));
  if (std::ranges::all_of(hashes, [&](const auto& hash) { return hash == hashes.front(); }))
    return base::ok();

  // Rank 0 shows its spec; each rank with another spec says what differs; every rank hears it.
  const std::string specKey = key + "/spec";
  std::string difference;
  if (job.rank() == Rank{0}) {
    SLUICE_RETURN_IF_ERROR(tellSpec(plan.spec(), specKey, job));
  } else if (plan::toHex(plan.hash()) != hashes.front()) {
    SLUICE_ASSIGN_OR_RETURN(const auto theirs, hearSpec(specKey, job));
    difference =
        fmt::format("rank {}: {}", job.rank(), firstDifference(plan.spec(), theirs, Rank{0}));
  }
  SLUICE_ASSIGN_OR_RETURN(const auto differences, job.gather(key + "/difference", difference));
  const auto first =
      std::ranges::find_if(differences, [](const auto& text) { return !text.empty(); });
  return {Code::kInvalidArgument,
          fmt::format("the ranks do not train the same thing: {}",
                      first == differences.end() ? "?" : base::printable(*first))};
}

}  // namespace sluice::session
