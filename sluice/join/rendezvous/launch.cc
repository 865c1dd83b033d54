#include <sluice/join/rendezvous/launch.h>

#include <array>
#include <vector>

#include <fmt/format.h>

#include <sluice/base/units.h>

namespace sluice::rendezvous {
namespace {

struct Names {
  std::string_view rank;
  std::string_view worldSize;
  std::string_view localRank;
};
constexpr std::array kLaunchers{
    Names{"RANK", "WORLD_SIZE", "LOCAL_RANK"},
    Names{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    Names{"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"}};

Status missing(std::string_view name) {
  return {
      Code::kInvalidArgument,
      fmt::format(
          "{} is not set; start with torchrun, with mpirun or srun (on several hosts mpirun needs "
          "-x MASTER_ADDR=HOST -x MASTER_PORT=PORT with rank 0's host), or set RANK, WORLD_SIZE, "
          "MASTER_ADDR and MASTER_PORT",
          name)};
}

Result<uint32_t> readNumber(const base::Config::Values& environment, std::string_view name,
                            uint32_t least, uint32_t most) {
  const auto found = environment.find(name);
  if (found == environment.end() || found->second.empty()) return missing(name);
  const auto number = base::parseInteger(found->second);
  if (!number.isOk() || *number < least || *number > most) {
    return Status(Code::kInvalidArgument, fmt::format("{}={} must be a whole number from {} to {}",
                                                      name, found->second, least, most));
  }
  return static_cast<uint32_t>(*number);
}

std::string_view textOf(const base::Config::Values& environment, std::string_view name) {
  const auto found = environment.find(name);
  return found == environment.end() ? std::string_view() : std::string_view(found->second);
}

// "gpu[03-07,12],login" is a list of hosts as Slurm writes it; its first is gpu03.
std::string firstHost(std::string_view list) {
  const size_t end = list.find_first_of(",[");
  std::string first(list.substr(0, end));
  if (end == std::string_view::npos || list[end] == ',') return first;
  const auto numbers = list.substr(end + 1);
  first += numbers.substr(0, numbers.find_first_of(",-]"));
  const size_t closing = list.find(']', end);
  if (closing != std::string_view::npos) {
    const auto rest = list.substr(closing + 1);
    first += rest.substr(0, rest.find_first_of(",["));
  }
  return first;
}

// Returns a port that is the same for all ranks of one job, and probably differs between two jobs
// on one host.
uint16_t portFor(std::string_view job) {
  constexpr uint32_t kFirst = 20000;  // below where the kernel takes ports for clients from
  constexpr uint32_t kPorts = 10000;
  uint32_t hash = 2166136261U;  // FNV-1a: the same on every host, unlike std::hash
  for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return static_cast<uint16_t>(kFirst + hash % kPorts);
}

// mpirun and srun name no master. It is derived from their variables, and is empty if these do not
// say enough. MASTER_ADDR and MASTER_PORT win over it.
struct Master {
  std::string host;
  uint16_t port = 0;
};
Master deriveMaster(const Names& launcher, const base::Config::Values& environment) {
  // Only what is certain is derived. Open MPI names no host, so a master follows only if all
  // ranks are on one host. Slurm lists the hosts, and the first of them runs rank 0.
  if (launcher.rank == "OMPI_COMM_WORLD_RANK") {
    const auto job = textOf(environment, "PMIX_NAMESPACE");
    const bool isOneHost = textOf(environment, "OMPI_COMM_WORLD_LOCAL_SIZE") ==
                           textOf(environment, "OMPI_COMM_WORLD_SIZE");
    if (isOneHost && !job.empty()) return {"127.0.0.1", portFor(job)};
  }
  if (launcher.rank == "SLURM_PROCID") {
    auto hosts = textOf(environment, "SLURM_STEP_NODELIST");
    if (hosts.empty()) hosts = textOf(environment, "SLURM_JOB_NODELIST");
    const auto job = textOf(environment, "SLURM_JOB_ID");
    const bool isOneHost = textOf(environment, "SLURM_STEP_NUM_NODES") == "1";
    if (!hosts.empty() && !job.empty()) {
      const std::string step(textOf(environment, "SLURM_STEP_ID"));
      return {isOneHost ? "127.0.0.1" : firstHost(hosts), portFor(std::string(job) + "." + step)};
    }
  }
  return {};
}

// Reads only the ids that every rank of one launch sees alike:
// - torchrun counts restarts for each host on its own: the count identifies a launch on one host.
// - Started by hand inside a Slurm job, ranks may come from several steps of that job.
// - In a heterogeneous Slurm job each component has its own job id.
std::map<std::string, std::string> readIds(const Names& launcher,
                                           const base::Config::Values& environment) {
  std::vector<std::string_view> names;
  if (environment.contains("TORCHELASTIC_RUN_ID")) {
    names = {"TORCHELASTIC_RUN_ID"};
    if (textOf(environment, "GROUP_WORLD_SIZE") == "1")
      names.emplace_back("TORCHELASTIC_RESTART_COUNT");
  } else if (launcher.rank == "OMPI_COMM_WORLD_RANK") {
    names = {"PMIX_NAMESPACE"};
  } else if (!environment.contains("SLURM_HET_SIZE")) {
    names = {"SLURM_JOB_ID"};
    if (launcher.rank == "SLURM_PROCID") names.emplace_back("SLURM_STEP_ID");
  }
  std::map<std::string, std::string> ids;
  for (const auto name : names) {
    if (const auto text = textOf(environment, name); !text.empty()) ids.emplace(name, text);
  }
  return ids;
}

}  // namespace

Result<Launch> readLaunch(const base::Config::Values& environment) {
  // The variables of one launcher belong together: RANK of one and WORLD_SIZE of another would
  // be two jobs. torchrun's names come first, since a user who sets them by hand inside a Slurm
  // job means them.
  const Names* names = kLaunchers.data();
  for (const Names& launcher : kLaunchers) {
    if (environment.contains(launcher.rank)) {
      names = &launcher;
      break;
    }
  }
  Launch launch;
  SLUICE_ASSIGN_OR_RETURN(const uint32_t rank,
                          readNumber(environment, names->rank, 0, kLargestWorld - 1));
  SLUICE_ASSIGN_OR_RETURN(launch.worldSize,
                          readNumber(environment, names->worldSize, 1, kLargestWorld));
  if (rank >= launch.worldSize) {
    return Status(Code::kInvalidArgument, fmt::format("{}={} must be below {}={}", names->rank,
                                                      rank, names->worldSize, launch.worldSize));
  }
  launch.rank = Rank{rank};
  if (environment.contains(names->localRank)) {
    SLUICE_ASSIGN_OR_RETURN(launch.localRank,
                            readNumber(environment, names->localRank, 0, kLargestWorld - 1));
  }
  launch.ids = readIds(*names, environment);
  const Master derived = deriveMaster(*names, environment);
  launch.masterHost = std::string(textOf(environment, "MASTER_ADDR"));
  if (launch.masterHost.empty()) launch.masterHost = derived.host;
  if (launch.masterHost.empty()) return missing("MASTER_ADDR");
  if (textOf(environment, "MASTER_PORT").empty() && derived.port != 0) {
    launch.masterPort = derived.port;
    return launch;
  }
  SLUICE_ASSIGN_OR_RETURN(const uint32_t port,
                          readNumber(environment, "MASTER_PORT", rank == 0 ? 0 : 1, 65534));
  // torchrun's own store listens on MASTER_PORT. The next port is as well known to all ranks,
  // and most likely free.
  const bool torchrunHasPort = port != 0 && environment.contains("TORCHELASTIC_RUN_ID");
  launch.masterPort = static_cast<uint16_t>(torchrunHasPort ? port + 1 : port);
  return launch;
}

}  // namespace sluice::rendezvous
