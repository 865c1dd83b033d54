// Files of networks and of topologies, and notes of ranks that measure one: any bytes at all. An
// accepted network is whole; an error is one line.
#include <sluice/base/json.h>
#include <tools/planner/cluster.h>
#include <tools/probe/facts.h>
#include <tools/sim/topology_file.h>

#include "file_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto cluster = planner::parseCluster(text, "net.json");
  if (!cluster.isOk()) fuzz::mustBeOneLine(cluster.status().message());
  if (cluster.isOk() && cluster->network.rate.bitsPerSecond == 0) std::abort();
  const auto topology = sim::parseTopologyJson(text, "topology.json");
  if (!topology.isOk()) fuzz::mustBeOneLine(topology.status().message());
  constexpr uint32_t kRanks = 4;
  if (const auto facts = probe::decodeRankFacts(text, kRanks); facts.isOk()) {
    for (const auto& pair : facts->pairs) {
      if (pair.to >= kRanks) std::abort();
    }
  }
  return 0;
}
