#include <sluice/session/other_ranks.h>

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <sluice/base/whereabouts.h>
#include <sluice/join/rendezvous/rank_list.h>

namespace sluice::session {
namespace {

constexpr size_t kMostPlaces = 4;  // a line that people read, not a dump

struct Place {
  std::string text;
  bool waitsForResults;
  std::vector<Rank> ranks;
  Duration since{};  // the longest
};

std::string describePlace(const Place& place) {
  return fmt::format("{} {} been {} for {}", rendezvous::describeRanks(place.ranks),
                     place.ranks.size() == 1 ? "has" : "have", place.text,
                     base::describeSince(place.since));
}

}  // namespace

std::string describeOtherRanks(const fabric::Pulse* pulse, Rank self, size_t worldSize,
                               TimePoint now) {
  std::vector<Place> places;
  for (uint32_t r = 0; pulse != nullptr && r < worldSize; ++r) {
    const auto word = Rank{r} == self ? std::nullopt : pulse->lastWord(Rank{r});
    if (!word || word->training.doing == base::Doing::kUnknown) continue;
    const std::string text = base::describe(word->training);
    auto place = std::ranges::find(places, text, &Place::text);
    if (place == places.end()) {
      places.push_back({text, word->training.doing == base::Doing::kGate, {}, {}});
      place = std::prev(places.end());
    }
    place->ranks.push_back(Rank{r});
    const Duration unheard = std::max(Duration::zero(), now - word->heard);
    place->since = std::max(place->since, word->training.since + unheard);
  }
  std::ranges::stable_partition(places, [](const Place& place) { return !place.waitsForResults; });
  std::vector<std::string> parts;
  size_t left = 0;
  for (const Place& place : places) {
    if (parts.size() < kMostPlaces)
      parts.push_back(describePlace(place));
    else
      left += place.ranks.size();
  }
  if (left > 0) parts.push_back(fmt::format("{} more ranks are elsewhere", left));
  return fmt::format("{}", fmt::join(parts, "; "));
}

LongWait::LongWait(const Clock& clock, Duration first, Report report)
    : clock_(clock), begun_(clock.now()), next_(first), report_(std::move(report)) {}

void LongWait::look() {
  const Duration waited = clock_.now() - begun_;
  if (waited < next_) return;
  next_ = 2 * waited;
  report_(waited);
}

}  // namespace sluice::session
