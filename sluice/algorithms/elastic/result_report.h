// Which results a member has when a new epoch begins, as it tells the other members, and the
// decision that all of them derive from all reports. Pure functions over plain values; any thread.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <sluice/algorithms/elastic/kept_results.h>
#include <sluice/base/status.h>
#include <sluice/transport/wire/header.h>

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

// The sender's own bits of the headers that members send while an epoch begins (wire/header.h).
// Their stage is kReady, which no message of an algorithm has.
namespace elastic {
inline constexpr auto kReport = wire::Flags{0x0100};      // the results that the sender has
inline constexpr auto kHandedOver = wire::Flags{0x0200};  // a result that the receiver lacks
}  // namespace elastic

}  // namespace sluice::algorithms
