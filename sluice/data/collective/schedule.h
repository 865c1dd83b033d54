// A collective as a plain value: one list per rank, which says round by round which parts it sends
// and receives. Pure functions, any thread. The engine (operation.h) plays it; a test plays all
// ranks' lists against each other.
//
// Data is N parts, one per rank. A rank enters a round when it has all that it was to receive in
// the rounds before, and sends what the round says. Between two ranks there is at most one message
// in each direction in a round.
#pragma once

#include <cstdint>
#include <vector>

#include <sluice/base/ids.h>
#include <sluice/data/collective/method.h>

namespace sluice::collective {

// Parts first .. first+count-1, which lie next to each other.
struct Parts {
  uint32_t first = 0;
  uint32_t count = 0;
  friend bool operator==(const Parts&, const Parts&) = default;
};

struct OutgoingParts {
  Rank to{};
  Parts parts{};
};

struct IncomingParts {
  Rank from{};
  Parts parts{};
};

enum class Arriving : uint8_t {
  kContributions,  // to be summed with our own, in rank order
  kResults,        // take the place of our own
};

struct ScheduleRound {
  std::vector<OutgoingParts> sends{};
  std::vector<IncomingParts> receives{};  // contributions of one round are all of the same parts
  Arriving arriving = Arriving::kResults;
  // The parts that are sent are final: with a codec the sender keeps the values that the others
  // will decode.
  bool sendsResults = false;
};

using Schedule = std::vector<ScheduleRound>;

// REQUIRES: rank < world
Schedule allReduceSchedule(Method method, Rank rank, uint32_t world);
Schedule reduceScatterSchedule(Method method, Rank rank, uint32_t world);
Schedule allGatherSchedule(Method method, Rank rank, uint32_t world);
Schedule broadcastSchedule(Rank root, Rank rank, uint32_t world);  // a binary tree

}  // namespace sluice::collective
