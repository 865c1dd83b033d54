// sluice plan as a job: the launcher that would start the training starts the plan, too.
#include <sluice/cli/plan_flags.h>

#include <unistd.h>

#include <cstdio>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sluice/base/median.h>
#include <sluice/base/text.h>
#include <sluice/cli/profiled_script.h>
#include <sluice/probe/meeting.h>
#include <sluice/probe/network_file.h>
#include <sluice/probe/probe.h>

namespace sluice::cli {
namespace {

// A host that computes so many times longer than the median is called slower.
constexpr double kSlower = 1.15;
// Ranks wait for the profile of the slowest.
constexpr Duration kMostProfiling = std::chrono::minutes(10);

// Runs the script on every rank, each on its own. Returns the seconds that each of them computes.
Result<std::vector<double>> profileTogether(probe::Meeting& meeting, PlanFlags& flags) {
  const bool isFirst = index(meeting.rank()) == 0;
  const std::string path =
      isFirst ? flags.profileOut : fmt::format("/tmp/sluice-profile-{}.json", ::getpid());
  const Status ran = profileScript(flags.script, flags.steps, path, kMostProfiling);
  double seconds = 0;
  Status status = ran;
  if (ran.isOk()) {
    const auto profile = timing::readProfile(path);
    status = profile.status();
    if (profile.isOk()) seconds = profile->computeSeconds;
  }
  if (!isFirst) std::remove(path.c_str());
  // A rank that has failed says so to the others, instead of letting them wait.
  SLUICE_ASSIGN_OR_RETURN(
      const auto values,
      meeting.gather("plan-compute", status.isOk() ? fmt::format("{}", seconds) : "failed",
                     kMostProfiling));
  SLUICE_RETURN_IF_ERROR(status);
  std::vector<double> all;
  for (size_t rank = 0; rank < values.size(); ++rank) {
    const auto value = base::parseNumber(values[rank]);
    if (!value.isOk() || !(*value > 0)) {
      return Status(
          Code::kUnavailable,
          fmt::format("rank {} could not measure the model; its own output says why", rank));
    }
    all.push_back(*value);
  }
  flags.profile = flags.profileOut;
  return all;
}

void markSlowerHosts(const std::vector<double>& computeSeconds, planner::Cluster& cluster) {
  if (computeSeconds.empty()) return;
  const double median = base::median(computeSeconds);
  for (size_t rank = 0; rank < computeSeconds.size(); ++rank) {
    if (computeSeconds[rank] > kSlower * median)
      cluster.slowerHosts[static_cast<uint32_t>(rank)] = computeSeconds[rank] / median;
  }
}

}  // namespace

Result<int> planAsJob(PlanFlags flags, const base::Config& config) {
  SLUICE_ASSIGN_OR_RETURN(
      const auto meeting,
      probe::Meeting::prepare(config, base::processEnvironment(), {.command = "plan"}));
  if (meeting->worldSize() < 2) {
    return Status(
        Code::kInvalidArgument,
        "this is the only rank, so there is no network to measure: start 'sluice plan' as "
        "you start the training, or give --rate or --network, and --hosts");
  }
  SLUICE_RETURN_IF_ERROR(meeting->open());
  SLUICE_RETURN_IF_ERROR(meeting->join("").status());
  const bool isFirst = index(meeting->rank()) == 0;
  if (isFirst) fmt::print(stderr, "measuring the network of {} ranks\n", meeting->worldSize());
  SLUICE_ASSIGN_OR_RETURN(const auto facts, probe::probeNetwork(*meeting));
  std::vector<double> computeSeconds;
  if (!flags.script.empty()) {
    if (isFirst) fmt::print(stderr, "measuring the model of {}\n", flags.script.front());
    SLUICE_ASSIGN_OR_RETURN(computeSeconds, profileTogether(*meeting, flags));
  }
  if (!isFirst) return 0;
  SLUICE_ASSIGN_OR_RETURN(const auto network, probe::networkFile(facts));
  SLUICE_ASSIGN_OR_RETURN(planner::Cluster cluster,
                          planner::parseCluster(network.dump(), "what was measured"));
  cluster.network.hosts = meeting->worldSize();
  markSlowerHosts(computeSeconds, cluster);
  SLUICE_ASSIGN_OR_RETURN(const auto question, questionFor(flags, config, std::move(cluster)));
  return answerAndPrint(flags, question);
}

}  // namespace sluice::cli
