#include <sluice/rendezvous/launch.h>

#include <array>
#include <limits>

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
  return {Code::kInvalidArgument,
          fmt::format("{} is not set; start with torchrun, mpirun or srun, or set RANK, WORLD_SIZE, "
                      "MASTER_ADDR and MASTER_PORT",
                      name)};
}

Result<uint32_t> readNumber(const Config::Values& environment, std::string_view name, uint32_t least,
                            uint32_t most) {
  const auto found = environment.find(name);
  if (found == environment.end() || found->second.empty()) return missing(name);
  const auto number = base::parseInteger(found->second);
  if (!number.isOk() || *number < least || *number > most) {
    return Status(Code::kInvalidArgument, fmt::format("{}={} must be a whole number from {} to {}", name,
                                                      found->second, least, most));
  }
  return static_cast<uint32_t>(*number);
}

}  // namespace

Result<Launch> readLaunch(const Config::Values& environment) {
  const Names* names = kLaunchers.data();
  for (const Names& launcher : kLaunchers) {
    if (environment.contains(launcher.rank)) {
      names = &launcher;
      break;
    }
  }
  Launch launch;
  SLUICE_ASSIGN_OR_RETURN(const uint32_t rank, readNumber(environment, names->rank, 0, kLargestWorld - 1));
  SLUICE_ASSIGN_OR_RETURN(launch.worldSize, readNumber(environment, names->worldSize, 1, kLargestWorld));
  if (rank >= launch.worldSize) {
    return Status(Code::kInvalidArgument, fmt::format("{}={} must be below {}={}", names->rank, rank,
                                                      names->worldSize, launch.worldSize));
  }
  launch.rank = Rank{rank};
  if (environment.contains(names->localRank)) {
    SLUICE_ASSIGN_OR_RETURN(launch.localRank,
                            readNumber(environment, names->localRank, 0, kLargestWorld - 1));
  }
  const auto host = environment.find("MASTER_ADDR");
  if (host == environment.end() || host->second.empty()) return missing("MASTER_ADDR");
  launch.masterHost = host->second;
  SLUICE_ASSIGN_OR_RETURN(const uint32_t port, readNumber(environment, "MASTER_PORT", 1, 65534));
  const bool torchrunHasPort = environment.contains("TORCHELASTIC_RUN_ID");
  launch.masterPort = static_cast<uint16_t>(torchrunHasPort ? port + 1 : port);
  return launch;
}

}  // namespace sluice::rendezvous
