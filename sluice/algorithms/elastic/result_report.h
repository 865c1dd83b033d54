// Which results a member has when a new epoch begins, as it tells the other members, and the
// decision that all of them derive from all reports. Pure functions over plain values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <sluice/algorithms/elastic/kept_results.h>
#include <sluice/base/status.h>

namespace sluice::algorithms {

// By SliceId.
using ResultReport = std::vector<LastResult>;

// `epoch` is the one that begins. The bytes have the same length for every report of a model.
Result<std::vector<std::byte>> toBytes(const ResultReport& report, Epoch epoch);
size_t reportBytes(size_t slices);
// Believes nothing it reads.
Result<ResultReport> reportFromBytes(std::span<const std::byte> bytes, size_t slices, Epoch epoch);

// The result of a slice with which every member begins the epoch.
struct AgreedResult {
  LastResult result{};
  Rank holder{};  // the lowest rank that has it, which hands it to those that lack it
};

// By SliceId. Returns an error that names the first slice of which some member is more than one
// result behind: no member that follows the rules is.
Result<std::vector<AgreedResult>> agreeOn(std::span<const ResultReport> byRank);

}  // namespace sluice::algorithms
