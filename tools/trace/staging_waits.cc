#include <tools/trace/staging_waits.h>

#include <algorithm>
#include <map>
#include <set>

#include <sluice/observe/trace/journeys.h>

namespace sluice::trace {
namespace {

struct Interval {
  TimePoint from{};
  TimePoint to{};
};

// Intervals in order that do not touch.
using Intervals = std::vector<Interval>;

Intervals united(Intervals intervals) {
  std::erase_if(intervals, [](const Interval& each) { return each.to <= each.from; });
  std::ranges::sort(intervals, {}, &Interval::from);
  Intervals result;
  for (const Interval& each : intervals) {
    if (!result.empty() && each.from <= result.back().to) {
      result.back().to = std::max(result.back().to, each.to);
    } else {
      result.push_back(each);
    }
  }
  return result;
}

Intervals common(const Intervals& a, const Intervals& b) {
  Intervals result;
  for (auto x = a.begin(), y = b.begin(); x != a.end() && y != b.end();) {
    const Interval both{std::max(x->from, y->from), std::min(x->to, y->to)};
    if (both.from < both.to) result.push_back(both);
    if (x->to < y->to) {
      ++x;
    } else {
      ++y;
    }
  }
  return result;
}

Duration lengthOf(const Intervals& intervals) {
  Duration sum{};
  for (const Interval& each : intervals) sum += each.to - each.from;
  return sum;
}

// The time in which this rank, or any rank of several, had a slice in one of these stages.
Intervals timesIn(const std::set<Stage>& stages, std::span<const RankTrace> traces,
                  const Journeys& journeys) {
  Intervals intervals;
  for (const RankTrace& trace : traces) {
    for (const StageEvent& event : trace.events) {
      if (!stages.contains(event.stage)) continue;
      if (const auto end = journeys.endOf(trace.rank, event)) intervals.push_back({event.at, *end});
    }
  }
  return united(std::move(intervals));
}

Intervals waitsOf(const RankTrace& trace) {
  Intervals intervals;
  for (const WaitEvent& wait : trace.waits) intervals.push_back({wait.from, wait.to});
  return united(std::move(intervals));
}

// Returns when each step's last gradient was there. Steps that the trace does not hold in full are
// left out.
std::map<Step, TimePoint> endsOf(const RankTrace& trace) {
  struct Pass {
    size_t gradients = 0;
    TimePoint end{};
  };
  std::map<Step, Pass> passes;
  size_t most = 0;
  for (const StageEvent& event : trace.events) {
    if (event.stage != Stage::kReady) continue;
    Pass& pass = passes[event.step];
    most = std::max(most, ++pass.gradients);
    pass.end = std::max(pass.end, event.at);
  }
  std::map<Step, TimePoint> ends;
  for (const auto& [step, pass] : passes) {
    if (pass.gradients == most) ends[step] = pass.end;
  }
  return ends;
}

// Returns how many copies of other tensors a slice of the first tensor waited for, in each step; the
// greatest of its slices. Copies to the host are made one after another. So it waited for those that
// began between its gradient and its own copy, and for the last one that began before its gradient,
// if that had not ended. Slices of one tensor whose copying began at one moment are one copy. A copy
// ends when its slices have left, which is a little late: the number may be too large by one.
std::map<Step, size_t> copiesBeforeFirstTensor(const RankTrace& trace, const Journeys& journeys) {
  struct OutCopy {
    TimePoint begun{};
    TensorId tensor{};
    auto operator<=>(const OutCopy&) const = default;
  };
  std::map<OutCopy, TimePoint> ends;
  for (const StageEvent& event : trace.events) {
    if (event.stage != Stage::kStageOut) continue;
    const auto end = journeys.endOf(trace.rank, event);
    if (!end) continue;
    TimePoint& latest = ends[{event.at, event.tensor}];
    latest = std::max(latest, *end);
  }
  std::map<Step, size_t> most;
  for (const StageEvent& own : trace.events) {
    if (own.stage != Stage::kStageOut || own.tensor != TensorId{0}) continue;
    const auto ready = journeys.at(own.slice, own.step, trace.rank, Stage::kReady, trace.rank);
    if (!ready) continue;
    size_t before = 0;
    const auto after = ends.lower_bound({*ready, TensorId{0}});
    if (after != ends.begin()) {
      const auto& [copy, end] = *std::prev(after);
      if (copy.tensor != own.tensor && end > *ready) ++before;
    }
    for (auto copy = after; copy != ends.end() && copy->first.begun < own.at; ++copy) {
      if (copy->first.tensor != own.tensor) ++before;
    }
    most[own.step] = std::max(most[own.step], before);
  }
  return most;
}

}  // namespace

std::vector<StagingWaits> stagingWaits(std::span<const RankTrace> traces) {
  const Journeys journeys(traces);
  const Intervals network =
      timesIn({Stage::kQueued, Stage::kPush, Stage::kPublish}, traces, journeys);
  Intervals both = timesIn({Stage::kReady, Stage::kStageOut, Stage::kStageIn}, traces, journeys);
  both.insert(both.end(), network.begin(), network.end());
  const Intervals networkOrStaging = united(std::move(both));

  std::vector<StagingWaits> result;
  for (const RankTrace& trace : traces) {
    const std::span<const RankTrace> own(&trace, 1);
    const Intervals waits = waitsOf(trace);
    const Intervals copies = timesIn({Stage::kStageOut}, own, journeys);
    const Intervals pushes = timesIn({Stage::kPush}, own, journeys);
    const auto copiesBefore = copiesBeforeFirstTensor(trace, journeys);
    const auto ends = endsOf(trace);
    for (const auto& [step, end] : ends) {
      const auto former = index(step) == 0 ? ends.end() : ends.find(Step{index(step) - 1});
      if (former == ends.end()) continue;
      StagingWaits each{.step = step, .rank = trace.rank, .begin = former->second, .end = end};
      const Intervals iteration{{each.begin, each.end}};
      const Intervals waited = common(waits, iteration);
      each.network = lengthOf(common(waited, network));
      each.staging = lengthOf(common(waited, networkOrStaging)) - each.network;
      each.other = lengthOf(waited) - each.network - each.staging;
      const Intervals copied = common(copies, iteration);
      each.stagingOut = lengthOf(copied);
      each.stagingOutAndPush = lengthOf(common(copied, pushes));
      // The copies that follow an iteration's last gradient are those of the next.
      const auto found = copiesBefore.find(former->first);
      if (found != copiesBefore.end()) each.copiesBeforeFirst = found->second;
      result.push_back(each);
    }
  }
  std::ranges::sort(result, {},
                    [](const StagingWaits& each) { return std::pair(each.step, each.rank); });
  return result;
}

}  // namespace sluice::trace
