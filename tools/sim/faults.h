// Faults of a simulated job: links that carry nothing for a while or change their rate, and hosts
// that are lost for good. Plain values.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <sluice/base/clock.h>
#include <sluice/base/status.h>
#include <sluice/base/units.h>

namespace sluice::sim {

struct PlannedFault {
  enum class Kind : uint8_t { kLinkCut, kLinkRate, kHostLost };
  Kind kind = Kind::kLinkCut;
  uint32_t host = 0;
  Duration at{};      // from the beginning of training
  Duration length{};  // of a cut or a change
  Rate rate{};        // of the link meanwhile, in both directions; of a change only

  friend bool operator==(const PlannedFault&, const PlannedFault&) = default;
};

// A list such as "cut:3@200ms+50ms,rate:4=100mbit@1s+5s,lose:5@1s": the link of host 3 carries
// nothing for 50 ms, that of host 4 has another rate for 5 s, and host 5 is lost. An empty text
// means no faults.
Result<std::vector<PlannedFault>> parseFaults(std::string_view text);

// Draws `count` cuts of up to 20 ms in the first `within` of training.
std::vector<PlannedFault> drawCuts(uint64_t seed, uint32_t count, uint32_t hosts, Duration within);

}  // namespace sluice::sim
