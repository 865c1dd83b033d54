// Compares ranks while training goes on. Every rank hashes its own tensors and settings, and one
// hash of all meets the others in the rendezvous store. Only if those differ, the ranks look for
// the first that does, and show each other the details.
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

// Returns a checksum of the bytes that is the same on every machine: it finds accidents, and runs
// at the speed of memory.
uint64_t hashOf(std::span<const std::byte> bytes);

struct RankDifference {
  // The first tensor that differs; among very many tensors, it is one of the `count` tensors from
  // here on.
  size_t first = 0;
  size_t count = 1;
  std::vector<Rank> ranks;                // without the most common hash
  std::vector<Rank> others;               // with the most common hash; rank 0's wins a tie
  std::vector<std::string> details = {};  // of every rank

  friend bool operator==(const RankDifference&, const RankDifference&) = default;
};

// Returns the first difference; empty if all ranks have the same hashes. REQUIRES: `hashes` holds
// the hashes of every rank, by tensor, and equally many of each rank.
std::optional<RankDifference> findDifference(std::span<const std::vector<uint64_t>> hashes);

// The longest detail that fits into a note of the store beside the hashes.
inline constexpr size_t kMostDetailBytes = 24'000;

// Compares the hashes of all ranks without waiting. Every rank calls it with the same key and
// equally many hashes; `detail` says more about them, and is sent only if they differ. The future
// holds an error if a rank is lost before all have contributed their hashes.
// REQUIRES: the job has several ranks, and detail.size() <= kMostDetailBytes.
using Comparison = std::shared_future<Result<std::optional<RankDifference>>>;
Comparison compareRanks(JobParts& job, const std::string& key, std::vector<uint64_t> hashes,
                        const std::string& detail);

}  // namespace sluice::session
