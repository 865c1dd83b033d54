// What the files of several ranks say together: who waited for whom, for which layer and step, and
// which rank was lost or late first. Pure functions over values.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tools/trace/flight_reader.h>

namespace sluice::flight {

// Times of a report are wall time, since 1970, on the clock of the first file's host as far as the
// files know the distances of their clocks.
using WallTime = Duration;

enum class WaitKind : uint8_t { kLayer, kMeeting, kBroadcast };

// A wait of a rank: the first that failed, or one that had not ended.
struct SavedWait {
  WaitKind kind = WaitKind::kLayer;
  std::string session{};  // empty for a meeting, which belongs to the job
  std::string what{};     // the layer, or the meeting
  uint64_t step = 0;      // the number of a meeting that has one
  WallTime since{};
  std::optional<WallTime> failed{};  // empty: it had not ended
  std::string why{};                 // it failed
  std::set<uint32_t> forRanks{};     // as far as the files say
};

struct SavedLoss {
  uint32_t rank = 0;
  WallTime at{};
  std::string why{};
};

struct SavedRank {
  uint32_t rank = 0;
  const SavedFlight* file = nullptr;  // null: there is none
  std::optional<uint64_t> step{};     // the last that it began
  std::string session{};              // of that step
  WallTime last{};                    // its last event
  std::optional<SavedWait> wait{};
  std::vector<SavedLoss> losses{};  // other ranks that it missed
  std::string failure{};            // the first that it knows
};

enum class Fate : uint8_t { kLost, kLate, kEnded, kAborted };
std::string_view name(Fate fate);

// The rank that the others waited for, or that ended first.
struct FirstFault {
  uint32_t rank = 0;
  Fate fate = Fate::kLost;
  WallTime since{};
  std::string why{};
  std::vector<uint32_t> waiting{};  // the ranks that say so
  std::string session{};
  std::string layer{};  // that they waited for; empty: they waited for no layer
  uint64_t step = 0;
  std::string during{};  // the meeting or broadcast, if they waited for no layer
};

struct FlightReport {
  std::string job{};
  uint32_t worldSize = 0;
  std::vector<SavedRank> ranks{};      // those with files, by rank, then those that are missing
  std::optional<FirstFault> fault{};   // empty: nothing went wrong, as far as the files say
  std::vector<std::string> leftOut{};  // files of other jobs, or of earlier runs
};

// REQUIRES: there is a file; the files outlive the report.
FlightReport reportOf(std::span<const SavedFlight> files);

// Returns the first rank that a text names outside of quotes: "rank 3 is lost", "ranks 2 and 5".
std::optional<uint32_t> rankNamedIn(std::string_view text);

}  // namespace sluice::flight
