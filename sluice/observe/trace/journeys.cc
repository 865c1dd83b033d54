#include <sluice/observe/trace/journeys.h>

#include <algorithm>

namespace sluice::trace {
namespace {

// Steps of one trace are near each other, so 32 bits tell them apart.
uint64_t keyOf(SliceId slice, Step step) {
  return uint64_t{index(slice)} << 32 | (index(step) & 0xffffffffU);
}

template <typename Moment>
std::optional<TimePoint> timeOf(const std::optional<Moment>& moment) {
  return moment ? std::optional(moment->at) : std::nullopt;
}

std::optional<TimePoint> earlier(std::optional<TimePoint> a, std::optional<TimePoint> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

}  // namespace

Journeys::Journeys(std::span<const RankTrace> traces) {
  for (const RankTrace& trace : traces) {
    for (const auto& event : trace.events)
      entries_[keyOf(event.slice, event.step)].push_back({trace.rank, &event});
  }
}

std::span<const Journeys::Entry> Journeys::of(SliceId slice, Step step) const {
  const auto found = entries_.find(keyOf(slice, step));
  return found == entries_.end() ? std::span<const Entry>() : std::span<const Entry>(found->second);
}

std::optional<TimePoint> Journeys::at(SliceId slice, Step step, Rank rank, Stage stage,
                                      Rank peer) const {
  for (const Entry& entry : of(slice, step)) {
    if (entry.rank == rank && entry.event->stage == stage && entry.event->peer == peer)
      return entry.event->at;
  }
  return std::nullopt;
}

std::optional<Journeys::Moment> Journeys::first(SliceId slice, Step step, Rank rank,
                                                Stage stage) const {
  std::optional<Moment> found;
  for (const Entry& entry : of(slice, step)) {
    if (entry.rank != rank || entry.event->stage != stage) continue;
    if (!found || entry.event->at < found->at) found = Moment{entry.event->peer, entry.event->at};
  }
  return found;
}

std::optional<Journeys::Moment> Journeys::last(SliceId slice, Step step, Rank rank,
                                               Stage stage) const {
  std::optional<Moment> found;
  for (const Entry& entry : of(slice, step)) {
    if (entry.rank != rank || entry.event->stage != stage) continue;
    // Among several events at one moment the last one reported is taken.
    if (!found || entry.event->at >= found->at) found = Moment{entry.event->peer, entry.event->at};
  }
  return found;
}

std::optional<TimePoint> Journeys::endOf(Rank rank, const StageEvent& event) const {
  const auto here = [&](Stage stage) {
    return timeOf(first(event.slice, event.step, rank, stage));
  };
  const auto with = [&](Stage stage) {
    return at(event.slice, event.step, rank, stage, event.peer);
  };
  // A part goes into the queue, or to the server beside this worker.
  const auto leftWorker = [&] {
    return earlier(here(Stage::kQueued), at(event.slice, event.step, rank, Stage::kCollect, rank));
  };
  // A stage ends where the next one begins, which may be another rank's event: a push ends when
  // its server collects it. If that rank's trace is missing, the end is not known.
  switch (event.stage) {
    case Stage::kReady: return earlier(here(Stage::kStageOut), leftWorker());
    case Stage::kStageOut: return leftWorker();
    // A slice goes to its server as a push and comes from there as a publication: one rank does
    // only one of the two.
    case Stage::kQueued: return earlier(with(Stage::kPush), with(Stage::kPublish));
    case Stage::kPush: return at(event.slice, event.step, event.peer, Stage::kCollect, rank);
    case Stage::kCollect: return here(Stage::kReduce);
    case Stage::kReduce: return here(Stage::kUpdate);
    case Stage::kUpdate:
      return earlier(here(Stage::kQueued), earlier(here(Stage::kStageIn), here(Stage::kApplied)));
    case Stage::kPublish:
      return earlier(at(event.slice, event.step, event.peer, Stage::kStageIn, rank),
                     at(event.slice, event.step, event.peer, Stage::kApplied, rank));
    case Stage::kStageIn: return with(Stage::kApplied);
    case Stage::kApplied: return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace sluice::trace
