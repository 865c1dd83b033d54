#include <tools/trace/one_clock.h>

#include <optional>

#include <fmt/format.h>

namespace sluice::trace {
namespace {

// Returns the clock of `to` minus the clock of `from`, by the quicker of their exchanges; empty if
// neither knows the other's clock.
std::optional<fabric::ClockOffset> between(const RankTrace& from, const RankTrace& to) {
  std::optional<fabric::ClockOffset> best;
  if (const auto found = from.clocks.find(to.rank); found != from.clocks.end())
    best = found->second;
  if (const auto found = to.clocks.find(from.rank); found != to.clocks.end()) {
    const fabric::ClockOffset reversed{-found->second.offset, found->second.roundTrip};
    if (!best || reversed.roundTrip < best->roundTrip) best = reversed;
  }
  return best;
}

}  // namespace

// Dijkstra's algorithm; the length of a way is the sum of its uncertainties.
Result<std::vector<ClockShift>> putOnOneClock(std::span<RankTrace> traces) {
  std::vector<std::optional<ClockShift>> shifts(traces.size());
  std::vector<bool> isFinal(traces.size());
  if (!traces.empty()) shifts[0] = ClockShift{.rank = traces[0].rank};
  for (size_t round = 0; round < traces.size(); ++round) {
    std::optional<size_t> nearest;
    for (size_t i = 0; i < traces.size(); ++i) {
      if (isFinal[i] || !shifts[i]) continue;
      if (!nearest || shifts[i]->uncertainty < shifts[*nearest]->uncertainty) nearest = i;
    }
    if (!nearest) break;
    isFinal[*nearest] = true;
    const ClockShift here = *shifts[*nearest];
    for (size_t i = 0; i < traces.size(); ++i) {
      if (isFinal[i]) continue;
      const auto offset = between(traces[*nearest], traces[i]);
      if (!offset) continue;
      const ClockShift there{traces[i].rank, here.ahead + offset->offset,
                             here.uncertainty + offset->roundTrip / 2};
      if (!shifts[i] || there.uncertainty < shifts[i]->uncertainty) shifts[i] = there;
    }
  }
  std::vector<ClockShift> all;
  for (size_t i = 0; i < traces.size(); ++i) {
    if (!shifts[i]) {
      return Status(Code::kUnavailable,
                    fmt::format("rank {}'s clock is unknown: no heartbeats went back and forth "
                                "between it and the others; "
                                "trace a longer run",
                                traces[i].rank));
    }
    all.push_back(*shifts[i]);
  }
  for (size_t i = 0; i < traces.size(); ++i) shift(traces[i], -all[i].ahead);
  return all;
}

}  // namespace sluice::trace
