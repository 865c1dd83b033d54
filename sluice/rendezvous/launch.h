// Who this process is, as its launcher (torchrun, mpirun, srun) says it in environment variables.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <sluice/base/config.h>
#include <sluice/base/status.h>
#include <sluice/types/ids.h>

namespace sluice::rendezvous {

inline constexpr uint32_t kLargestWorld = 65536;

struct Launch {
  Rank rank{};
  uint32_t worldSize = 1;
  uint32_t localRank = 0;
  std::string masterHost;
  uint16_t masterPort = 0;
  // What the launcher calls this launch, by variable name: the same on all ranks of it, and
  // different for the next launch. Empty if the launcher gives no such name.
  std::map<std::string, std::string> ids{};
};

// Reads MASTER_ADDR and MASTER_PORT, and RANK, WORLD_SIZE and LOCAL_RANK or what mpirun and srun
// set in their place; srun, and mpirun on one host, also say enough to do without the first two.
// Under torchrun MASTER_PORT belongs to torchrun's own store, so the port after it is taken. Rank 0
// may have MASTER_PORT=0: it listens on any free port, and tells the others by means of its own.
// The error names the variable that is missing or wrong.
Result<Launch> readLaunch(const base::Config::Values& environment);

}  // namespace sluice::rendezvous
