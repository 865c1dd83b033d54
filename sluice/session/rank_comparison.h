// Compares tensors between ranks while training goes on: every rank hashes its own, the hashes meet
// in the rendezvous store, and only if they differ is the first tensor looked for that does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <sluice/base/status.h>
#include <sluice/session/job_parts.h>
#include <sluice/types/ids.h>

namespace sluice::session {

// Of bytes, the same on every machine.
uint64_t hashOf(std::span<const std::byte> bytes);

struct RankDifference {
  size_t first =
      0;  // the first tensor that differs, or, of very many tensors, one of `count` from there on
  size_t count = 1;
  std::vector<Rank> ranks;   // those that are not like the most
  std::vector<Rank> others;  // the most, or those that are like rank 0

  friend bool operator==(const RankDifference&, const RankDifference&) = default;
};

// Empty: all ranks have the same. REQUIRES: `hashes` has every rank's, by tensor, and equally many
// of each.
std::optional<RankDifference> findDifference(std::span<const std::vector<uint64_t>> hashes);

// Every rank calls it with the same key and equally many hashes, and nobody waits. The future holds
// an error if a rank is lost before all have brought theirs. REQUIRES: the job has several ranks.
using Comparison = std::shared_future<Result<std::optional<RankDifference>>>;
Comparison compareRanks(JobParts& job, const std::string& key, std::vector<uint64_t> hashes);

}  // namespace sluice::session
