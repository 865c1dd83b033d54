#include <sluice/session/rank_comparison.h>

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <utility>

#include <sluice/base/byte_io.h>
#include <sluice/base/options.h>
#include <sluice/transport/wire/crc32c.h>

namespace sluice::session {
namespace {

constexpr size_t kMostHashes = 4000;  // as many as fit into a note of the store, 64 KiB

std::string hashesToNote(std::span<const uint64_t> hashes) {
  base::ByteWriter writer;
  for (const uint64_t hash : hashes) writer.number(hash);
  return base::textOf(writer.bytes());
}

uint64_t hashOfAll(std::span<const uint64_t> hashes) {
  const std::string note = hashesToNote(hashes);
  return hashOf(std::as_bytes(std::span(note)));
}

// Returns at most kMostHashes hashes, each of `count` neighbours, and `count`.
std::pair<std::vector<uint64_t>, size_t> inGroups(std::vector<uint64_t> hashes) {
  const size_t count = (hashes.size() + kMostHashes - 1) / kMostHashes;
  if (count <= 1) return {std::move(hashes), 1};
  std::vector<uint64_t> groups;
  for (size_t first = 0; first < hashes.size(); first += count)
    groups.push_back(
        hashOfAll(std::span(hashes).subspan(first, std::min(count, hashes.size() - first))));
  return {std::move(groups), count};
}

// A note has so many hashes, and after them the rank's detail.
Result<std::vector<std::vector<uint64_t>>> hashesFromNotes(const std::vector<std::string>& notes,
                                                           size_t expected) {
  std::vector<std::vector<uint64_t>> hashes;
  for (const std::string& note : notes) {
    if (note.size() < expected * sizeof(uint64_t))
      return Status(Code::kDataLoss, "ranks compare different numbers of tensors");
    base::ByteReader reader(std::as_bytes(std::span(note)));
    auto& own = hashes.emplace_back();
    for (size_t n = 0; n < expected; ++n) own.push_back(reader.number<uint64_t>());
  }
  return hashes;
}

}  // namespace

uint64_t hashOf(std::span<const std::byte> bytes) {
  return uint64_t{wire::crc32c(bytes)} | uint64_t{bytes.size()} << 32U;
}

std::optional<RankDifference> findDifference(std::span<const std::vector<uint64_t>> hashes) {
  const size_t tensors = hashes.empty() ? 0 : hashes.front().size();
  for (size_t t = 0; t < tensors; ++t) {
    std::map<uint64_t, size_t> ranksWith;
    for (const auto& own : hashes) ++ranksWith[own[t]];
    if (ranksWith.size() == 1) continue;
    // The most common hash is taken for the right one, and the ranks without it are named: one
    // rank that differs is the likely culprit. Of two equally common ones rank 0's wins, so
    // that all ranks say the same.
    uint64_t usual = hashes.front()[t];
    for (const auto& [hash, ranks] : ranksWith) {
      if (ranks > ranksWith[usual]) usual = hash;
    }
    RankDifference difference{.first = t, .count = 1, .ranks = {}, .others = {}, .details = {}};
    for (uint32_t rank = 0; rank < hashes.size(); ++rank)
      (hashes[rank][t] == usual ? difference.others : difference.ranks).push_back(Rank{rank});
    return difference;
  }
  return std::nullopt;
}

Comparison compareRanks(JobParts& job, const std::string& key, std::vector<uint64_t> hashes,
                        const std::string& detail) {
  using Found = std::optional<RankDifference>;
  const auto promise = std::make_shared<std::promise<Result<Found>>>();
  const Duration atMost = job.config().duration(option::kWaitTimeout);
  // Two rounds keep the usual case cheap: first one hash of all tensors, a few bytes in the
  // store; only if that differs, a hash for each tensor or group of tensors.
  const std::string digest = hashesToNote(std::vector{hashOfAll(hashes)});
  const auto grouped = inGroups(std::move(hashes));
  auto whenDetailed = [promise, size = grouped.first.size(),
                       count = grouped.second](const Result<std::vector<std::string>>& notes) {
    if (!notes.isOk()) return promise->set_value(notes.status());
    const auto all = hashesFromNotes(*notes, size);
    if (!all.isOk()) return promise->set_value(all.status());
    Found found = findDifference(*all);
    if (found) {
      found->first *= count;
      found->count = count;
      for (const std::string& note : *notes)
        found->details.push_back(note.substr(size * sizeof(uint64_t)));
    }
    promise->set_value(std::move(found));
  };
  job.gatherLater(
      key, digest, atMost,
      [&job, promise, key, atMost, note = hashesToNote(grouped.first) + detail,
       whenDetailed = std::move(whenDetailed)](const Result<std::vector<std::string>>& notes) {
        if (!notes.isOk()) return promise->set_value(notes.status());
        if (std::ranges::all_of(*notes, [&](const auto& other) { return other == notes->front(); }))
          return promise->set_value(Found());
        job.gatherLater(key + "/tensors", note, atMost, whenDetailed);
      });
  return promise->get_future().share();
}

}  // namespace sluice::session
