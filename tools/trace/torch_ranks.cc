#include <tools/trace/torch_ranks.h>

#include <algorithm>
#include <map>

#include <fmt/format.h>

namespace sluice::trace {

Status checkRanks(std::span<const TorchProfile> profiles, std::span<const RankTrace> traces) {
  std::map<Rank, const TorchProfile*> byRank;
  for (const TorchProfile& profile : profiles) {
    if (!profile.rank) {
      return {Code::kInvalidArgument,
              fmt::format("{0} does not say its rank; write --torch RANK={0}", profile.path)};
    }
    const Rank rank = *profile.rank;
    const auto [other, isNew] = byRank.emplace(rank, &profile);
    if (!isNew) {
      return {Code::kInvalidArgument,
              fmt::format("{} and {} are both of rank {}; give one profile of each rank",
                          other->second->path, profile.path, rank)};
    }
    const auto trace = std::ranges::find(traces, rank, &RankTrace::rank);
    if (trace == traces.end()) {
      return {Code::kInvalidArgument,
              fmt::format("{} is of rank {}, which has no trace; write --torch RANK={} if that is "
                          "the wrong rank",
                          profile.path, rank, profile.path)};
    }
    if (!trace->wall) {
      return {
          Code::kInvalidArgument,
          fmt::format("the trace of rank {} has no wall clock, since an older sluice or 'sluice "
                      "simulate' wrote it; trace a job again",
                      rank)};
    }
    const Duration late = momentOf(*trace, profile.first) - trace->end();
    const Duration early = trace->begin() - momentOf(*trace, profile.last);
    if (const Duration apart = std::max(late, early); apart > trace->wall->uncertainty) {
      return {
          Code::kInvalidArgument,
          fmt::format("{} is {:.1f} s {} the trace of rank {}; give files of one run", profile.path,
                      base::seconds(apart), late > early ? "after" : "before", rank)};
    }
  }
  return base::ok();
}

}  // namespace sluice::trace
