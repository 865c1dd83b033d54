#include <tools/trace/critical_path.h>

#include <algorithm>
#include <map>
#include <utility>

namespace sluice::trace {
namespace {

// The steps of one rank as its training thread saw them.
struct Rhythm {
  struct Pass {
    size_t gradients = 0;
    TimePoint end{};  // the last gradient was handed over
  };
  std::map<Step, Pass> passes;
  std::map<std::pair<TensorId, Step>, const StageEvent*> opened;  // the slice that came last
  std::vector<WaitEvent> waits;                                   // by their end
};

Rhythm rhythmOf(const RankTrace& trace) {
  Rhythm rhythm;
  for (const auto& event : trace.events) {
    if (event.stage == Stage::kReady) {
      auto& pass = rhythm.passes[event.step];
      ++pass.gradients;
      pass.end = std::max(pass.end, event.at);
    } else if (event.stage == Stage::kApplied) {
      auto& last = rhythm.opened[{event.tensor, event.step}];
      if (last == nullptr || last->at <= event.at) last = &event;
    }
  }
  rhythm.waits = trace.waits;
  std::ranges::sort(rhythm.waits, {}, &WaitEvent::to);
  // Drops passes that are not there in full, because the job ended or the recorder's room did.
  size_t most = 0;
  for (const auto& [step, pass] : rhythm.passes) most = std::max(most, pass.gradients);
  std::erase_if(rhythm.passes, [&](const auto& each) { return each.second.gradients < most; });
  return rhythm;
}

using Rhythms = std::map<Rank, Rhythm>;

// Follows one iteration from its end to its beginning.
class Walk final {
 public:
  Walk(const Rhythms& rhythms, const Journeys& journeys, Iteration& iteration)
      : rhythms_(rhythms), journeys_(journeys), iteration_(iteration), at_(iteration.end) {}

  void run() {
    std::optional<Rank> rank = iteration_.rank;
    while (at_ > iteration_.begin && rank) {
      const TimePoint before = at_;
      rank = backFromComputing(*rank);
      if (at_ == before) break;  // the times make no sense
    }
    if (at_ > iteration_.begin)
      back(iteration_.begin, {.activity = Activity::kUnknown, .rank = iteration_.rank});
    std::ranges::reverse(iteration_.parts);
  }

 private:
  // The rank was computing at this moment. Returns the rank that was computing before the result it
  // waited for; empty if no trace tells.
  std::optional<Rank> backFromComputing(Rank rank) {
    const auto found = rhythms_.find(rank);
    if (found == rhythms_.end()) return std::nullopt;
    const Rhythm& rhythm = found->second;
    const auto after = std::ranges::upper_bound(rhythm.waits, at_, {}, &WaitEvent::to);
    if (after == rhythm.waits.begin()) {
      back(iteration_.begin, {.activity = Activity::kCompute, .rank = rank});
      return rank;
    }
    const WaitEvent& wait = *std::prev(after);
    back(wait.to, {.activity = Activity::kCompute, .rank = rank});
    if (at_ <= iteration_.begin) return rank;
    return backThroughGate(rank, rhythm, wait);
  }

  std::optional<Rank> backThroughGate(Rank rank, const Rhythm& rhythm, const WaitEvent& wait) {
    const auto found = rhythm.opened.find({wait.tensor, wait.step});
    if (found == rhythm.opened.end()) return std::nullopt;
    const StageEvent& applied = *found->second;
    const PathPart gate{.activity = Activity::kGate,
                        .rank = rank,
                        .tensor = wait.tensor,
                        .slice = applied.slice,
                        .peer = rank};
    // The gate opened before it was asked for: the wait was for the thread itself only.
    if (applied.at <= wait.from) {
      back(wait.from, gate);
      // The same wait must not be found again.
      at_ = std::min(at_, wait.to - Duration(1));
      return rank;
    }
    back(applied.at, gate);
    return backThroughStages(rank, applied);
  }

  // Goes from the worker, where the result is, to the server, and on to the worker whose part was
  // the last.
  std::optional<Rank> backThroughStages(Rank worker, const StageEvent& applied) {
    const SliceId slice = applied.slice;
    const Step step = applied.step;
    const Rank server = applied.peer;
    PathPart part{.activity = Activity::kStage,
                  .rank = server,
                  .tensor = applied.tensor,
                  .slice = slice,
                  .peer = worker};
    const auto enter = [&](Stage stage, std::optional<TimePoint> at) {
      if (!at) return false;
      part.stage = stage;
      back(*at, part);
      return true;
    };
    const auto timeAt = [&](Rank rank, Stage stage, Rank peer) {
      return journeys_.at(slice, step, rank, stage, peer);
    };

    // Gradients in host memory are not copied between a device and the host.
    part.rank = worker;
    part.peer = server;
    enter(Stage::kStageIn, timeAt(worker, Stage::kStageIn, server));
    part.rank = server;
    part.peer = worker;
    if (server != worker) {
      if (!enter(Stage::kPublish, timeAt(server, Stage::kPublish, worker))) return std::nullopt;
      if (!enter(Stage::kQueued, timeAt(server, Stage::kQueued, worker))) return std::nullopt;
    }
    part.peer = server;
    if (!enter(Stage::kUpdate, timeAt(server, Stage::kUpdate, server))) return std::nullopt;
    if (!enter(Stage::kReduce, timeAt(server, Stage::kReduce, server))) return std::nullopt;
    const auto last = journeys_.last(slice, step, server, Stage::kCollect);
    if (!last) return std::nullopt;
    const Rank pusher = last->peer;
    part.peer = pusher;
    enter(Stage::kCollect, last->at);
    part.rank = pusher;
    part.peer = server;
    if (pusher != server) {
      if (!enter(Stage::kPush, timeAt(pusher, Stage::kPush, server))) return std::nullopt;
      if (!enter(Stage::kQueued, timeAt(pusher, Stage::kQueued, server))) return std::nullopt;
    }
    part.peer = pusher;
    enter(Stage::kStageOut, timeAt(pusher, Stage::kStageOut, pusher));
    if (!enter(Stage::kReady, timeAt(pusher, Stage::kReady, pusher))) return std::nullopt;
    return pusher;
  }

  // Adds a part that lasted from `to` until the present place of the path. Clocks may disagree by a
  // little; the path never goes forward.
  void back(TimePoint to, PathPart part) {
    part.from = std::max(to, iteration_.begin);
    part.to = at_;
    if (part.from >= part.to) return;
    at_ = part.from;
    iteration_.parts.push_back(part);
  }

  const Rhythms& rhythms_;
  const Journeys& journeys_;
  Iteration& iteration_;
  TimePoint at_;  // the present place of the path; goes back
};

}  // namespace

std::string_view PathPart::name() const {
  switch (activity) {
    case Activity::kCompute: return "compute";
    case Activity::kStage: return sluice::name(stage);
    case Activity::kGate: return "gate";
    case Activity::kUnknown: return "unknown";
  }
  return "?";
}

Duration Iteration::explained() const {
  Duration sum{};
  for (const auto& part : parts) {
    if (part.activity != Activity::kUnknown) sum += part.length();
  }
  return sum;
}

std::vector<Iteration> criticalPaths(std::span<const RankTrace> traces) {
  Rhythms rhythms;
  for (const auto& trace : traces) rhythms.emplace(trace.rank, rhythmOf(trace));
  std::map<Step, Iteration> iterations;
  for (const auto& [rank, rhythm] : rhythms) {
    for (const auto& [step, pass] : rhythm.passes) {
      const auto before = rhythm.passes.find(Step{index(step) - 1});
      if (index(step) == 0 || before == rhythm.passes.end()) continue;
      auto& iteration = iterations[step];
      if (pass.end > iteration.end) iteration = {step, rank, before->second.end, pass.end, {}};
    }
  }
  const Journeys journeys(traces);
  std::vector<Iteration> result;
  for (auto& [step, iteration] : iterations) {
    Walk(rhythms, journeys, iteration).run();
    result.push_back(std::move(iteration));
  }
  return result;
}

}  // namespace sluice::trace
