#include <tests/device/runtime/schedule.h>

#include <algorithm>

#include <fmt/format.h>
#include <sluice/base/random.h>

namespace sluice::pretend {

namespace {

// A stream with more queued work than this is not held back, as a real device takes no more.
constexpr size_t kLongestQueue = 1024;
// Work is held back for at most this many times the patience, whatever the others do.
constexpr int kMostPatience = 50;
// A demanded copy waits for other host threads for a part of the patience.
constexpr int kGraceDivisor = 10;
constexpr Duration kLongestGrace = std::chrono::milliseconds(1);

constexpr Duration kLookAgain = std::chrono::seconds(1);

bool conflicts(const Work& a, const Work& b) {
  return std::ranges::any_of(a.uses, [&](const Use& one) {
    return std::ranges::any_of(b.uses, [&](const Use& other) {
      return one.block == other.block && (one.writes || other.writes);
    });
  });
}

}  // namespace

void Schedule::set(const Settings& settings) {
  settings_ = settings;
  for (Stream& stream : streams_) {
    stream.delays = 0;
    stream.released.reset();
  }
  ++changes_;
}

Place Schedule::add(StreamIndex index, Work work, TimePoint now) {
  Stream& stream = streams_[index];
  work.number = ++stream.added;
  work.order = ++calls_;
  lastCall_ = now;
  if (stream.queue.empty()) stream.headSince = now;
  stream.queue.push_back(std::move(work));
  ++changes_;
  return {index, stream.added};
}

void Schedule::demand(Place place, TimePoint now) {
  Stream& stream = streams_[place.stream];
  if (stream.wanted >= place.number || stream.done >= place.number) return;
  const uint64_t before = stream.wanted;
  stream.wanted = place.number;
  stream.wantedSince = now;
  ++changes_;
  for (const Work& work : stream.queue) {
    if (work.number > place.number) break;
    if (work.kind == Kind::kWait && work.number > before) demand(work.awaited, now);
  }
}

std::optional<TimePoint> Schedule::holdUntil(StreamIndex index, TimePoint now) {
  const Work& head = streams_[index].queue.front();
  if (head.kind == Kind::kRecord) return std::nullopt;
  if (head.kind == Kind::kWait) {
    if (isDone(head.awaited)) return std::nullopt;
    if (settings_.mode != Mode::kAdversary || streams_[index].wanted >= head.number) {
      return now + kLookAgain;
    }
    const TimePoint until = endOfPatience(index, now);
    if (now < until) return until;
    demand(end(index), now);
    return now + kLookAgain;
  }
  switch (settings_.mode) {
    case Mode::kEager: return std::nullopt;
    case Mode::kRandom: {
      const TimePoint released = randomRelease(index, now);
      return now < released ? std::optional(released) : std::nullopt;
    }
    case Mode::kAdversary: return adversaryHold(index, now);
  }
  return std::nullopt;
}

Work Schedule::take(StreamIndex index) {
  Stream& stream = streams_[index];
  Work work = std::move(stream.queue.front());
  stream.queue.pop_front();
  stream.running.uses = work.uses;
  stream.running.number = work.number;
  stream.running.order = work.order;
  stream.released.reset();
  ++changes_;
  return work;
}

void Schedule::finish(StreamIndex index, TimePoint now) {
  Stream& stream = streams_[index];
  ++stream.done;
  stream.headSince = now;
  stream.finished = now;
  ++changes_;
}

TimePoint Schedule::randomRelease(StreamIndex index, TimePoint now) {
  Stream& stream = streams_[index];
  if (!stream.released) {
    const uint64_t number = base::splitmix64(base::splitmix64(settings_.seed, index),  //
                                             stream.delays++);
    const auto longest =
        static_cast<uint64_t>(std::max<Duration::rep>(settings_.longestDelay.count(), 0));
    stream.released = now + Duration(static_cast<Duration::rep>(number % (longest + 1)));
  }
  return *stream.released;
}

TimePoint Schedule::endOfPatience(StreamIndex index, TimePoint now) const {
  const Stream& stream = streams_[index];
  if (stream.queue.size() > kLongestQueue) return now;
  TimePoint progress = std::max(stream.headSince, lastCall_);
  for (const Stream& other : streams_) {
    if (&other != &stream) progress = std::max(progress, other.finished);
  }
  return std::min(progress + settings_.patience,
                  stream.headSince + kMostPatience * settings_.patience);
}

std::optional<TimePoint> Schedule::adversaryHold(StreamIndex index, TimePoint now) {
  const Stream& stream = streams_[index];
  const Work& head = stream.queue.front();
  if (stream.wanted < head.number) {
    const TimePoint until = endOfPatience(index, now);
    if (now < until) return until;
    demand(end(index), now);  // all of it: the stream catches up
  }
  const TimePoint demanded = std::max(stream.headSince, stream.wantedSince);
  const TimePoint last = demanded + settings_.patience;
  if (now >= last) return std::nullopt;
  if (const std::optional<Place> rival = laterRival(index)) {
    demand(*rival, now);
    return last;
  }
  if (head.kind != Kind::kCopy) return std::nullopt;
  const Duration moment = std::min(settings_.patience / kGraceDivisor, kLongestGrace);
  const TimePoint grace = std::min(last, std::max(stream.wantedSince, lastCall_) + moment);
  return now < grace ? std::optional(grace) : std::nullopt;
}

std::optional<Place> Schedule::laterRival(StreamIndex index) const {
  const Work& head = streams_[index].queue.front();
  if (head.uses.empty()) return std::nullopt;
  for (StreamIndex other = 0; other < streams_.size(); ++other) {
    if (other == index) continue;
    const Stream& stream = streams_[other];
    if (const Work& work = stream.running;
        work.number > stream.done && work.order > head.order && conflicts(work, head)) {
      return Place{other, work.number};
    }
    for (const Work& work : stream.queue) {
      if (work.kind == Kind::kWait && !isDone(work.awaited)) {
        std::vector<uint64_t> explored(streams_.size(), 0);
        if (isAfter(work.awaited, {index, head.number}, explored)) break;
      }
      if (!conflicts(work, head)) continue;
      // Earlier work is better late: the head may rely on its result without a wait.
      if (work.order < head.order) break;
      return Place{other, work.number};
    }
  }
  return std::nullopt;
}

std::string Schedule::describe(StreamIndex index) const {
  const Stream& stream = streams_[index];
  std::string text = fmt::format("stream {}: {} of {} done, {} demanded", index, stream.done,
                                 stream.added, stream.wanted);
  if (!stream.queue.empty() && stream.queue.front().kind == Kind::kWait) {
    const Place awaited = stream.queue.front().awaited;
    text += fmt::format(", waits for {} of stream {}", awaited.number, awaited.stream);
  }
  return text + ". ";
}

bool Schedule::isAfter(Place place, Place first, std::vector<uint64_t>& explored) const {
  if (place.stream == first.stream) return place.number >= first.number;
  uint64_t& known = explored[place.stream];
  if (known >= place.number) return false;
  known = place.number;
  for (const Work& work : streams_[place.stream].queue) {
    if (work.number > place.number) break;
    if (work.kind == Kind::kWait && !isDone(work.awaited) &&
        isAfter(work.awaited, first, explored)) {
      return true;
    }
  }
  return false;
}

}  // namespace sluice::pretend
