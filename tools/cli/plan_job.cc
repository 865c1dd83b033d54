// sluice plan as a job: the launcher that would start the training starts the plan, too.
#include <tools/cli/plan_flags.h>

#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sluice/base/median.h>
#include <sluice/base/text.h>
#include <tools/cli/profiled_script.h>
#include <tools/probe/meeting.h>
#include <tools/probe/network_file.h>
#include <tools/probe/probe.h>

namespace sluice::cli {
namespace {

// A host that computes so many times longer than the median is called slower.
constexpr double kSlower = 1.15;
// Ranks wait for the profile of the slowest.
constexpr Duration kMostProfiling = std::chrono::minutes(10);

Result<Profile> profileInto(const PlanFlags& flags, const std::string& path) {
  SLUICE_RETURN_IF_ERROR(profileScript(flags.script, flags.steps, path, kMostProfiling));
  return timing::readProfile(path);
}

// Keeps no file. The folder is this user's alone: others could foresee a name in a common one.
Result<Profile> profileAside(const PlanFlags& flags) {
  std::string folder = (std::filesystem::temp_directory_path() / "sluice-plan-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr)
    return base::fromErrno("cannot make a folder for the profile");
  auto profile = profileInto(flags, folder + "/profile.json");
  std::error_code ignored;  // a file that stays does no harm
  std::filesystem::remove_all(folder, ignored);
  return profile;
}

// Runs the script on every rank, each on its own. Returns the seconds that each of them computes.
Result<std::vector<double>> profileTogether(probe::ProbeMeeting& meeting, PlanFlags& flags) {
  const bool isFirst = index(meeting.rank()) == 0;
  auto profile = isFirst ? profileInto(flags, flags.profileOut) : profileAside(flags);
  const Status& status = profile.status();
  const double seconds = profile.isOk() ? profile->computeSeconds : 0;
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
      probe::ProbeMeeting::prepare(config, base::processEnvironment(), {.command = "plan"}));
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
