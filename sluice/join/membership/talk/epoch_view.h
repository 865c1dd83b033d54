// The epoch of a job as its own members see it. A plain value; any thread.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include <sluice/base/ids.h>

namespace sluice::membership {

// Ranks of the first epoch name members for the whole job: `members[rank]` is the member that has
// `rank` in this epoch.
struct EpochView {
  Epoch epoch{};              // counted from 0 in this job
  std::vector<Rank> members;  // by rank in this epoch, in rising order
  Rank self{};                // this member's rank in this epoch

  Rank memberAt(Rank rank) const { return members[index(rank)]; }
  std::optional<Rank> rankOf(Rank member) const {
    const auto found = std::ranges::find(members, member);
    if (found == members.end()) return std::nullopt;
    return Rank{static_cast<uint32_t>(found - members.begin())};
  }
  size_t size() const { return members.size(); }
  // Returns the ranks of all members but this one.
  std::vector<Rank> others() const {
    std::vector<Rank> ranks;
    for (uint32_t rank = 0; rank < size(); ++rank) {
      if (Rank{rank} != self) ranks.push_back(Rank{rank});
    }
    return ranks;
  }
};

}  // namespace sluice::membership
