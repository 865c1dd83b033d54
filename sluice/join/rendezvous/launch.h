// The identity of this process, as its launcher (torchrun, mpirun, srun) gives it in environment
// variables.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <sluice/base/config.h>
#include <sluice/base/ids.h>
#include <sluice/base/status.h>

namespace sluice::rendezvous {

inline constexpr uint32_t kLargestWorld = 65536;

struct Launch {
  Rank rank{};
  uint32_t worldSize = 1;
  uint32_t localRank = 0;
  std::string masterHost;
  uint16_t masterPort = 0;
  // The launcher's names of this launch, by variable name. They are the same on all its ranks, and
  // different for the next launch. Empty if the launcher gives no such name.
  std::map<std::string, std::string> ids{};
};

// Reads MASTER_ADDR and MASTER_PORT, and RANK, WORLD_SIZE and LOCAL_RANK or the variables that
// mpirun and srun set in their place. srun, and mpirun on one host, do not need MASTER_ADDR and
// MASTER_PORT. Under torchrun MASTER_PORT belongs to torchrun's own store, so the port after it is
// taken. Rank 0 may have MASTER_PORT=0: it then listens on any free port, and tells the others by
// means of its own. The error names the variable that is missing or wrong.
Result<Launch> readLaunch(const base::Config::Values& environment);

}  // namespace sluice::rendezvous
