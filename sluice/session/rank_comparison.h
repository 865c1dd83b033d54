// Compares tensors between ranks while training goes on. Every rank hashes its own, and the hashes
// meet in the rendezvous store. Only if they differ, the ranks look for the first tensor that does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <sluice/base/ids.h>
#include <sluice/base/status.h>
#include <sluice/session/job_parts.h>

namespace sluice::session {

// Returns a hash of the bytes that is the same on every machine.
uint64_t hashOf(std::span<const std::byte> bytes);

struct RankDifference {
  // The first tensor that differs; among very many tensors, it is one of the `count` tensors from
  // here on.
  size_t first = 0;
  size_t count = 1;
  std::vector<Rank> ranks;   // without the most common hash
  std::vector<Rank> others;  // with the most common hash; rank 0's wins a tie

  friend bool operator==(const RankDifference&, const RankDifference&) = default;
};

// Returns the first difference; empty if all ranks have the same hashes. REQUIRES: `hashes` holds
// the hashes of every rank, by tensor, and equally many of each rank.
std::optional<RankDifference> findDifference(std::span<const std::vector<uint64_t>> hashes);

// Compares the hashes of all ranks without waiting. Every rank calls it with the same key and
// equally many hashes. The future holds an error if a rank is lost before all have contributed
// their hashes. REQUIRES: the job has several ranks.
using Comparison = std::shared_future<Result<std::optional<RankDifference>>>;
Comparison compareRanks(JobParts& job, const std::string& key, std::vector<uint64_t> hashes);

}  // namespace sluice::session
