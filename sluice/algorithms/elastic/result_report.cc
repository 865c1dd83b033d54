#include <sluice/algorithms/elastic/result_report.h>

#include <algorithm>

#include <fmt/format.h>

#include <sluice/base/byte_io.h>

namespace sluice::algorithms {
namespace {

constexpr size_t kBytesPerSlice = 2;
constexpr uint64_t kMostAhead = 127;  // steps of one slice beyond the last slice's
constexpr uint32_t kMostAgo = 255;    // epochs: an older result is reported as so old

Status notAReport(std::string_view why) {
  return {Code::kRefused, fmt::format("not a report of results: {}", why)};
}

}  // namespace

size_t reportBytes(size_t slices) {
  return sizeof(uint64_t) + slices * kBytesPerSlice;
}

Result<std::vector<std::byte>> toBytes(const ResultReport& report, Epoch epoch) {
  // Two bytes for each slice keep the report of a large model small: its steps beyond the slice
  // with the fewest, and the age of the result.
  uint64_t least = report.empty() ? 0 : report.front().steps;
  for (const LastResult& each : report) least = std::min(least, each.steps);
  base::ByteWriter writer;
  writer.reserve(reportBytes(report.size()));
  writer.number(least);
  for (const LastResult& each : report) {
    const uint64_t ahead = each.steps - least;
    if (ahead > kMostAhead) {
      return Status(Code::kInvalidArgument,
                    fmt::format("some tensors are {} steps ahead of others, and members can go on "
                                "without a lost one only if all tensors take the same steps; hand "
                                "over every gradient in every step",
                                ahead));
    }
    writer.number(static_cast<uint8_t>(ahead << 1U | (each.isEmpty ? 1U : 0U)));
    writer.number(static_cast<uint8_t>(std::min(index(epoch) - index(each.made), kMostAgo)));
  }
  return std::move(writer).take();
}

Result<ResultReport> reportFromBytes(std::span<const std::byte> bytes, size_t slices, Epoch epoch) {
  if (bytes.size() != reportBytes(slices)) return notAReport("its length is not the model's");
  base::ByteReader reader(bytes);
  const auto least = reader.number<uint64_t>();
  // The number comes from another rank, and the sums below must not overflow.
  if (least > UINT64_MAX - kMostAhead) return notAReport("no job has made so many steps");
  ResultReport report(slices);
  for (LastResult& each : report) {
    const auto steps = reader.number<uint8_t>();
    const auto ago = reader.number<uint8_t>();
    if (ago > index(epoch)) return notAReport("a result is older than the job");
    each = {.steps = least + (steps >> 1U),
            .made = Epoch{index(epoch) - ago},
            .isEmpty = (steps & 1U) != 0};
  }
  return report;
}

Result<std::vector<AgreedResult>> agreeOn(std::span<const ResultReport> byRank) {
  std::vector<AgreedResult> agreed(byRank.front().size());
  for (size_t s = 0; s < agreed.size(); ++s) {
    uint64_t fewest = UINT64_MAX;
    for (uint32_t rank = 0; rank < byRank.size(); ++rank) {
      const LastResult& here = byRank[rank][s];
      fewest = std::min(fewest, here.steps);
      // Among equals the lowest rank holds the result, so that all members choose alike.
      if (rank == 0 || here.steps > agreed[s].result.steps) agreed[s] = {here, Rank{rank}};
    }
    // Nobody can be two results ahead: for the second one every member gives its part, which it
    // does only with the first in its hands.
    const AgreedResult& most = agreed[s];
    if (most.result.steps - fewest > 1) {
      return Status(Code::kInternal,
                    fmt::format("rank {} has {} results of slice {}, and another member only {}",
                                index(most.holder), most.result.steps, s, fewest));
    }
  }
  return agreed;
}

}  // namespace sluice::algorithms
