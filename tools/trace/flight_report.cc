#include <tools/trace/flight_report.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <tuple>

#include <fmt/format.h>

namespace sluice::flight {
namespace {

// Of the files of one run, by rank.
using Files = std::map<uint32_t, const SavedFlight*>;

// What one file says, with its times on the common clock.
class Reading final {
 public:
  Reading(const SavedFlight& file, Duration ahead) : file_(file), ahead_(ahead) {
    for (const SavedEvent& event : file.events) take(event);
  }

  const SavedFlight& file() const { return file_; }
  WallTime timeOf(const SavedEvent& event) const { return event.at.time_since_epoch() + ahead_; }

  // The wait that matters: the first that failed, else the last that was still open.
  std::optional<SavedWait> wait() const {
    if (failed_) return failed_;
    const SavedWait* last = nullptr;
    for (const auto& [key, wait] : open_) {
      if (last == nullptr || wait.since > last->since) last = &wait;
    }
    return last == nullptr ? std::nullopt : std::optional(*last);
  }
  // The layer that was waited for at this time, or next after it.
  std::optional<SavedWait> layerAt(WallTime time) const {
    const SavedWait* next = nullptr;
    for (const SavedWait& wait : layers_) {
      const bool isOver = wait.failed && *wait.failed < time;
      if (isOver || (next != nullptr && wait.since >= next->since)) continue;
      next = &wait;
    }
    return next == nullptr ? std::nullopt : std::optional(*next);
  }
  const std::vector<SavedLoss>& losses() const { return losses_; }

  // Ranks that have sent something in a session, but nothing of `step` or later.
  std::set<uint32_t> behind(std::string_view session, uint64_t step) const {
    std::set<uint32_t> ranks;
    for (const auto& [who, reached] : reached_) {
      if (who.first == session && reached < step) ranks.insert(who.second);
    }
    return ranks;
  }
  // Ranks that have sent nothing in a session.
  std::set<uint32_t> unheard(std::string_view session) const {
    std::set<uint32_t> ranks;
    for (uint32_t rank = 0; rank < file_.worldSize; ++rank) {
      if (rank != file_.rank && !reached_.contains({std::string(session), rank}))
        ranks.insert(rank);
    }
    return ranks;
  }
  // Ranks whose results or parts of this layer came in an earlier step, but not in this one.
  std::set<uint32_t> missing(std::string_view session, std::string_view layer,
                             uint64_t step) const {
    std::map<std::pair<uint32_t, uint32_t>, uint64_t> latest;  // by slice and peer
    for (const SavedEvent& event : file_.events) {
      const bool isPart = event.kind == EventKind::kResult || event.kind == EventKind::kReceived;
      if (!isPart || event.peer == kNobody || event.peer == file_.rank) continue;
      if (file_.nameOf(event) != layer || sessionOf(event) != session) continue;
      auto& its = latest[{event.slice, event.peer}];
      its = std::max(its, event.step);
    }
    std::set<uint32_t> ranks;
    for (const auto& [from, its] : latest) {
      if (its < step) ranks.insert(from.second);
    }
    return ranks;
  }
  bool hasMet(const SavedWait& meeting) const {
    return std::ranges::any_of(file_.events, [&](const SavedEvent& event) {
      return event.kind == EventKind::kMeetingBegins && file_.nameOf(event) == meeting.what &&
             event.step == meeting.step;
    });
  }

  std::optional<uint64_t> lastStep;  // that it began
  std::string lastSession;           // of that step
  std::optional<SavedLoss> ownEnd;   // this rank ended by itself, before it missed another
  bool hasAborted = false;
  std::optional<SavedLoss> otherEnd;  // another rank ended, as its own note says
  std::string failure;
  WallTime lastAt{};

 private:
  std::string sessionOf(const SavedEvent& event) const {
    const auto found = sessions_.find(event.session);
    return found == sessions_.end() ? "" : found->second;
  }

  void take(const SavedEvent& event) {
    lastAt = std::max(lastAt, timeOf(event));
    switch (event.kind) {
      case EventKind::kSessionBegins: sessions_[event.session] = file_.nameOf(event); return;
      case EventKind::kStepBegins:
        lastStep = event.step;
        lastSession = sessionOf(event);
        return;
      case EventKind::kWaitBegins: return begin(event, WaitKind::kLayer);
      case EventKind::kMeetingBegins: return begin(event, WaitKind::kMeeting);
      case EventKind::kBroadcastBegins: return begin(event, WaitKind::kBroadcast);
      case EventKind::kWaitEnds: return end(event, WaitKind::kLayer, false);
      case EventKind::kMeetingEnds: return end(event, WaitKind::kMeeting, false);
      case EventKind::kBroadcastEnds: return end(event, WaitKind::kBroadcast, false);
      case EventKind::kWaitFails: return end(event, WaitKind::kLayer, true);
      case EventKind::kMeetingFails: return end(event, WaitKind::kMeeting, true);
      case EventKind::kBroadcastFails: return end(event, WaitKind::kBroadcast, true);
      case EventKind::kPeerInStep: {
        uint64_t& reached = reached_[{sessionOf(event), event.peer}];
        reached = std::max(reached, event.step);
        return;
      }
      case EventKind::kHeard: reached_.try_emplace({sessionOf(event), event.peer}, 0); return;
      case EventKind::kPeerLost:
        if (event.peer != kNobody)
          losses_.push_back({event.peer, timeOf(event), file_.textOf(event)});
        return;
      case EventKind::kFailed: return fail(event);
      case EventKind::kAborted:
        hasAborted = true;
        ownEnd = SavedLoss{file_.rank, timeOf(event), failure.empty() ? "aborted" : failure};
        return;
      default: return;
    }
  }

  void fail(const SavedEvent& event) {
    const std::string& why = file_.textOf(event);
    if (failure.empty()) failure = why;
    // A rank that ends by itself may name others in its reason.
    const bool isOwn = why.starts_with("this rank ");
    const auto named = isOwn ? std::nullopt : rankNamedIn(why);
    if (named && *named != file_.rank) {
      if (!otherEnd) otherEnd = SavedLoss{*named, timeOf(event), why};
    } else if (!ownEnd && !failed_ && losses_.empty() && !otherEnd) {
      ownEnd = SavedLoss{file_.rank, timeOf(event), why};
    }
  }

  using Key = std::tuple<WaitKind, std::string, std::string, uint64_t>;
  Key keyOf(const SavedEvent& event, WaitKind kind) const {
    const bool isBroadcast = kind == WaitKind::kBroadcast;
    return {kind, kind == WaitKind::kMeeting ? "" : sessionOf(event),
            isBroadcast ? fmt::format("from rank {}", event.peer) : file_.nameOf(event),
            isBroadcast ? 0 : event.step};
  }
  void begin(const SavedEvent& event, WaitKind kind) {
    const Key key = keyOf(event, kind);
    SavedWait wait{.kind = kind,
                   .session = std::get<1>(key),
                   .what = std::get<2>(key),
                   .step = std::get<3>(key),
                   .since = timeOf(event)};
    if (kind == WaitKind::kBroadcast && event.peer != kNobody && event.peer != file_.rank)
      wait.forRanks.insert(event.peer);
    if (kind == WaitKind::kLayer) layers_.push_back(wait);
    open_[key] = std::move(wait);
  }
  void end(const SavedEvent& event, WaitKind kind, bool hasFailed) {
    const Key key = keyOf(event, kind);
    const auto found = open_.find(key);
    if (found == open_.end()) return;
    SavedWait wait = std::move(found->second);
    open_.erase(found);
    wait.failed = timeOf(event);
    if (hasFailed) wait.why = file_.textOf(event);
    if (kind == WaitKind::kLayer) {
      const auto its = std::ranges::find(layers_, wait.since, &SavedWait::since);
      if (its != layers_.end() && hasFailed) *its = wait;
      if (its != layers_.end() && !hasFailed) its->failed = wait.failed;
    }
    if (hasFailed && !failed_) failed_ = std::move(wait);
  }

  const SavedFlight& file_;
  const Duration ahead_;
  std::map<uint16_t, std::string> sessions_;
  std::map<Key, SavedWait> open_;
  std::optional<SavedWait> failed_;
  std::vector<SavedWait> layers_;
  std::vector<SavedLoss> losses_;
  std::map<std::pair<std::string, uint32_t>, uint64_t> reached_;
};

// What to add to a file's times: its own wall clock, or that of the first file if their distance was
// measured.
Duration aheadOf(const SavedFlight& file, const SavedFlight& first) {
  constexpr int64_t kMostOffset = int64_t{1} << 60;
  if (file.host == first.host) return first.wallAhead;  // one steady clock
  const auto clockTo = [&](const SavedFlight& from, uint32_t peer) -> std::optional<Duration> {
    std::optional<Duration> found;
    for (const SavedEvent& event : from.events) {
      const auto offset = static_cast<int64_t>(event.step);
      const bool isClock = event.kind == EventKind::kClock && event.peer == peer;
      if (isClock && offset > -kMostOffset && offset < kMostOffset) found = Duration(offset);
    }
    return found;
  };
  if (const auto offset = clockTo(file, first.rank)) return *offset + first.wallAhead;
  if (const auto offset = clockTo(first, file.rank)) return first.wallAhead - *offset;
  return file.wallAhead;
}

using Readings = std::map<uint32_t, Reading>;

// The ranks that a wait waits for, as its own file says.
std::set<uint32_t> waitedFor(const Readings& readings, const Reading& reading,
                             const SavedWait& wait) {
  if (wait.kind == WaitKind::kBroadcast) return wait.forRanks;
  if (wait.kind == WaitKind::kLayer) {
    auto ranks = reading.behind(wait.session, wait.step);
    if (ranks.empty()) ranks = reading.missing(wait.session, wait.what, wait.step);
    if (ranks.empty() && wait.step == 0) ranks = reading.unheard(wait.session);
    if (!ranks.empty()) return ranks;
  } else {
    std::set<uint32_t> ranks;
    for (const auto& [rank, other] : readings) {
      if (!other.hasMet(wait)) ranks.insert(rank);
    }
    if (!ranks.empty()) return ranks;
  }
  const auto named = rankNamedIn(wait.why);
  return named ? std::set{*named} : std::set<uint32_t>{};
}

// Follows a wait to the rank that waits for nobody: the one to blame. A rank without a file ends the
// way, since nobody knows what it waits for.
uint32_t lateRank(const Readings& readings, uint32_t accused, const SavedWait& wait,
                  std::set<uint32_t>& seen) {
  const auto found = readings.find(accused);
  if (found == readings.end() || !seen.insert(accused).second) return accused;
  const Reading& reading = found->second;
  std::set<uint32_t> next;
  if (const auto its = reading.wait(); its && its->kind == WaitKind::kLayer) {
    next = waitedFor(readings, reading, *its);
  } else if (!its && wait.kind == WaitKind::kLayer) {
    next = reading.behind(wait.session, wait.step);  // a server waits at no gate
    // A rank that has not begun the step itself lacks more than others' parts.
    if (reading.lastSession == wait.session && reading.lastStep && *reading.lastStep < wait.step)
      next.clear();
  }
  for (const uint32_t rank : next) {
    if (rank != accused && !seen.contains(rank)) return lateRank(readings, rank, wait, seen);
  }
  return accused;
}

struct Accusation {
  FirstFault fault;
  WallTime at{};  // when it was noticed
};

void addWait(FirstFault& fault, const SavedWait& wait) {
  fault.session = wait.session;
  fault.step = wait.step;
  (wait.kind == WaitKind::kLayer ? fault.layer : fault.during) = wait.what;
}

// What one file says about others and itself.
std::vector<Accusation> accusations(const Readings& readings, const Reading& reading) {
  std::vector<Accusation> all;
  const uint32_t self = reading.file().rank;
  const auto accuse = [&](const SavedLoss& loss, Fate fate) {
    Accusation accusation{.fault = {.rank = loss.rank,
                                    .fate = fate,
                                    .since = loss.at,
                                    .why = loss.why,
                                    .waiting = {}},
                          .at = loss.at};
    if (loss.rank != self) accusation.fault.waiting.push_back(self);
    if (const auto wait = reading.layerAt(loss.at); wait && loss.rank != self)
      addWait(accusation.fault, *wait);
    all.push_back(std::move(accusation));
  };
  for (const SavedLoss& loss : reading.losses()) accuse(loss, Fate::kLost);
  if (reading.ownEnd) accuse(*reading.ownEnd, reading.hasAborted ? Fate::kAborted : Fate::kEnded);
  if (reading.otherEnd) accuse(*reading.otherEnd, Fate::kEnded);
  if (const auto wait = reading.wait(); wait && !reading.ownEnd) {
    for (const uint32_t accused : waitedFor(readings, reading, *wait)) {
      std::set<uint32_t> seen{self};
      const uint32_t rank = lateRank(readings, accused, *wait, seen);
      Accusation accusation{.fault = {.rank = rank,
                                      .fate = Fate::kLate,
                                      .since = wait->since,
                                      .why = wait->why,
                                      .waiting = {self}},
                            .at = wait->failed.value_or(WallTime::max())};
      addWait(accusation.fault, *wait);
      all.push_back(std::move(accusation));
    }
  }
  return all;
}

// Returns the rank that has seen this loss; empty if none has, as a damaged file may say.
std::optional<uint32_t> witnessOf(const Accusation& accusation) {
  const FirstFault& fault = accusation.fault;
  if (fault.fate != Fate::kLost || fault.waiting.empty()) return std::nullopt;
  return fault.waiting.front();
}

// Returns the loss to begin with. Two sides of a cut link have lost each other: the one that more
// ranks have lost is to blame.
size_t mostWitnessed(const std::vector<Accusation>& all) {
  const auto witness = witnessOf(all.front());
  if (!witness) return 0;
  const auto witnesses = [&](uint32_t rank) {
    std::set<uint32_t> ranks;  // each has a loss for every session
    for (const Accusation& each : all) {
      const auto seenBy = witnessOf(each);
      if (seenBy && each.fault.rank == rank) ranks.insert(*seenBy);
    }
    return ranks.size();
  };
  const uint32_t lost = all.front().fault.rank;
  for (size_t i = 1; i < all.size(); ++i) {
    const bool isMutual = all[i].fault.rank == *witness && witnessOf(all[i]) == lost;
    if (isMutual && witnesses(*witness) > witnesses(lost)) return i;
  }
  return 0;
}

// The first of all, and what the others add to it.
std::optional<FirstFault> firstOf(std::vector<Accusation> all) {
  if (all.empty()) return std::nullopt;
  // A rank that waits for a layer says more than one that waits for a meeting or a broadcast; those
  // two may wait for each other.
  const auto order = [](const Accusation& each) {
    const bool isOpen = each.at == WallTime::max();
    return std::tuple(each.at, isOpen && each.fault.layer.empty(), each.fault.since);
  };
  std::ranges::stable_sort(all, {}, order);
  const Accusation& front = all[mostWitnessed(all)];
  FirstFault first = front.fault;
  // The reason of the rank itself, or of the one who saw its loss, says more than that it was late.
  for (const Accusation& other : all) {
    if (other.fault.rank != first.rank) continue;
    const bool saysMore = first.fate == Fate::kLate && other.fault.fate != Fate::kLate &&
                          other.at <= front.at + std::chrono::seconds(1);
    if (saysMore || (first.fate != Fate::kAborted && other.fault.fate == Fate::kAborted)) {
      first.fate = other.fault.fate;
      first.why = other.fault.why;
    }
    if (first.layer.empty() && !other.fault.layer.empty()) {
      first.session = other.fault.session;
      first.layer = other.fault.layer;
      first.step = other.fault.step;
    }
    if (first.during.empty()) first.during = other.fault.during;
    for (const uint32_t rank : other.fault.waiting) {
      if (std::ranges::find(first.waiting, rank) == first.waiting.end())
        first.waiting.push_back(rank);
    }
  }
  std::ranges::sort(first.waiting);
  return first;
}

// The files of the latest run, one for each rank.
Files latestRun(std::span<const SavedFlight> files, std::vector<std::string>& leftOut) {
  const SavedFlight* latest = &files.front();
  const auto beganAt = [](const SavedFlight& file) {
    return file.began.time_since_epoch() + file.wallAhead;
  };
  for (const SavedFlight& file : files) {
    if (beganAt(file) > beganAt(*latest)) latest = &file;
  }
  Files chosen;
  for (const SavedFlight& file : files) {
    const bool isOfRun =
        file.run == latest->run && file.job == latest->job && file.worldSize == latest->worldSize;
    if (!isOfRun || !chosen.emplace(file.rank, &file).second) leftOut.push_back(file.path);
  }
  return chosen;
}

}  // namespace

std::string_view name(Fate fate) {
  switch (fate) {
    case Fate::kLost: return "lost";
    case Fate::kLate: return "late";
    case Fate::kEnded: return "ended";
    case Fate::kAborted: return "aborted";
  }
  return "?";
}

std::optional<uint32_t> rankNamedIn(std::string_view text) {
  bool isQuoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\'') isQuoted = !isQuoted;
    if (isQuoted || (i > 0 && text[i - 1] != ' ')) continue;
    for (const std::string_view word : {"rank ", "ranks "}) {
      if (!text.substr(i).starts_with(word)) continue;
      uint32_t rank = 0;
      const char* const from = text.data() + i + word.size();
      const auto [after, error] = std::from_chars(from, text.data() + text.size(), rank);
      if (error == std::errc() && after != from) return rank;
    }
  }
  return std::nullopt;
}

FlightReport reportOf(std::span<const SavedFlight> files) {
  FlightReport report;
  const Files chosen = latestRun(files, report.leftOut);
  const SavedFlight& first = *chosen.begin()->second;
  report.job = first.job;
  report.worldSize = first.worldSize;
  Readings readings;
  for (const auto& [rank, file] : chosen)
    readings.emplace(rank, Reading(*file, aheadOf(*file, first)));
  std::vector<Accusation> all;
  for (const auto& [rank, reading] : readings) {
    SavedRank each{.rank = rank,
                   .file = chosen.at(rank),
                   .step = reading.lastStep,
                   .session = reading.lastSession,
                   .last = reading.lastAt,
                   .wait = reading.wait(),
                   .losses = reading.losses(),
                   .failure = reading.failure};
    if (each.wait) each.wait->forRanks = waitedFor(readings, reading, *each.wait);
    report.ranks.push_back(std::move(each));
    for (Accusation& accusation : accusations(readings, reading))
      all.push_back(std::move(accusation));
  }
  constexpr uint32_t kMostNamed = 64;
  for (uint32_t rank = 0; rank < report.worldSize && report.ranks.size() < kMostNamed; ++rank) {
    if (!chosen.contains(rank)) report.ranks.push_back({.rank = rank});
  }
  report.fault = firstOf(std::move(all));
  return report;
}

}  // namespace sluice::flight
