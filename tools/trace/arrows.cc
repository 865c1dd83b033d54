#include <tools/trace/arrows.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

namespace sluice::trace {
namespace {

constexpr Duration kMark = std::chrono::microseconds(1);

// The first stages of a slice at the rank that it was sent to, as the path has them.
constexpr std::array kAfterPush{Stage::kCollect};
constexpr std::array kAfterPublish{Stage::kStageIn, Stage::kApplied};

std::optional<ArrowEnd> arrivalOf(const StageEvent& sent, Rank sender, const Journeys& journeys) {
  const std::span<const Stage> stages =
      sent.stage == Stage::kPush ? std::span<const Stage>(kAfterPush) : kAfterPublish;
  for (const Stage stage : stages) {
    const auto at = journeys.at(sent.slice, sent.step, sent.peer, stage, sender);
    if (at) return ArrowEnd{sent.peer, sender, stage, std::max(sent.at, *at)};
  }
  return std::nullopt;
}

// Viewers drop activities of one track that overlap in part, so a mark ends where the next begins.
void shortenMarks(std::vector<Arrow>& arrows) {
  std::map<std::pair<Rank, Stage>, std::vector<ArrowEnd*>> tracks;
  for (Arrow& arrow : arrows) {
    for (ArrowEnd* end : {&arrow.from, &arrow.to}) tracks[{end->rank, end->stage}].push_back(end);
  }
  for (auto& [track, ends] : tracks) {
    // Ends of the same moment keep their order in `arrows`.
    std::ranges::sort(ends, {}, [](const ArrowEnd* end) { return std::pair(end->at, end); });
    for (size_t i = 0; i < ends.size(); ++i)
      ends[i]->length =
          i + 1 == ends.size() ? kMark : std::min(kMark, ends[i + 1]->at - ends[i]->at);
  }
}

}  // namespace

std::vector<Arrow> arrowsBetween(std::span<const RankTrace> traces, const Journeys& journeys) {
  std::vector<Arrow> arrows;
  for (const RankTrace& trace : traces) {
    for (const StageEvent& sent : trace.events) {
      const bool isSent = sent.stage == Stage::kPush || sent.stage == Stage::kPublish;
      if (!isSent || sent.peer == trace.rank) continue;
      // Of a slice that was sent again, the first one is the one that arrived first.
      if (journeys.at(sent.slice, sent.step, trace.rank, sent.stage, sent.peer) != sent.at)
        continue;
      const auto arrival = arrivalOf(sent, trace.rank, journeys);
      if (!arrival) continue;
      arrows.push_back({sent.tensor, sent.slice, sent.step,
                        ArrowEnd{trace.rank, sent.peer, sent.stage, sent.at}, *arrival});
    }
  }
  shortenMarks(arrows);
  return arrows;
}

}  // namespace sluice::trace
