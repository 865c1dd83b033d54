// Everything that a probe has measured, by rank and by pair of ranks. Plain values; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <sluice/base/status.h>
#include <tools/probe/compute.h>

namespace sluice::probe {

// How one rank sends to another. Seconds, and bits of payload in a second.
struct PairFacts {
  uint32_t to = 0;
  std::string problem;       // the reason why no small message came through; empty: one did
  bool largePasses = false;  // a message of many packets came through
  double roundTrip = 0;      // of small messages, median, nothing else on the way; 0: not measured
  double loadedRoundTrip = 0;      // TCP's average while all ranks send to all
  double bitsPerSecond = 0;        // with no other traffic at either end; 0: not measured
  double sharedBitsPerSecond = 0;  // while all ranks send to all
  uint64_t segments = 0;           // that TCP sent in both measurements
  uint64_t resent = 0;             // of these, lost and sent again
  std::string control;             // the sender's congestion control
};

struct RankFacts {
  std::string name;     // of the host
  std::string address;  // without a port
  bool isEncrypted = false;
  std::vector<PairFacts> pairs;  // to the ranks that were measured
  double outAllBits = 0;         // to all other ranks together, while all send to all
  double inAllBits = 0;
  double cpuPerGb = 0;  // CPU seconds for each GB sent or received, with the job's settings
  double cpuPerGbPlain = 0;
  double cpuPerGbEncrypted = 0;
  std::map<std::string, double> codecCpuPerGb;  // for each GB of f32, there and back
  ComputeFacts compute;
};

struct NetworkFacts {
  std::vector<RankFacts> ranks;
  double seconds = 0;  // that the probe took

  const PairFacts* pair(uint32_t from, uint32_t to) const;  // null: not measured
  // The fastest that the rank has sent to, or received from, one other rank of another host.
  double bestOut(uint32_t rank) const;
  double bestIn(uint32_t rank) const;
};

// One rank's own share, as it travels to the others. Everything is checked on the way back.
std::string encode(const RankFacts& facts);
Result<RankFacts> decodeRankFacts(std::string_view text, uint32_t worldSize);

nlohmann::ordered_json toJson(const NetworkFacts& facts);

}  // namespace sluice::probe
