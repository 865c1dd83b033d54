// The task of one rank of a fabric measurement, and its answer, as text. The task travels on the
// rank's command line, the answer on one line of its output. Config chooses the fabric and its
// encryption, as in every other job.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sluice/base/status.h>

namespace sluice::bench {

enum class FabricCase {
  kPair,      // rank 0 sends to rank 1
  kAllToAll,  // everybody sends to everybody and sums what comes
  kOvertake,  // rank 0 sends rank 1 a backlog, and then something urgent
  kIdle,      // everybody says hello to everybody, and then nothing
};

std::string_view name(FabricCase which);

struct FabricTask {
  FabricCase which = FabricCase::kPair;
  double seconds = 2;  // that are counted, after the warm-up
  double warmUpSeconds = 0.5;
  int rounds = 20;            // of overtaking
  bool isFifo = false;        // overtake: sends in order, as an engine without urgency does
  bool outlivesLoss = false;  // goes on to its end when another rank is lost, and when told to end
  double busySeconds = 0;     // rank 1 keeps its loop busy for this long at the beginning

  std::string toText() const;  // one line of JSON
  friend bool operator==(const FabricTask&, const FabricTask&) = default;
};
Result<FabricTask> parseFabricTask(std::string_view text);

struct FabricReport {
  double receivedGbit = 0;         // per second, of payload
  double cpuSeconds = 0;           // of the process, while it counted
  std::vector<double> urgentMs{};  // overtake, at the receiver: from ready at the sender to landed
  uint64_t strangers = 0;          // turned away at the fabric's port
  uint64_t connections = 0;        // made or let in

  std::string toText() const;  // one line
};
// Returns empty if the line is no report: ranks may print other things.
std::optional<FabricReport> parseFabricReport(std::string_view line);

}  // namespace sluice::bench
