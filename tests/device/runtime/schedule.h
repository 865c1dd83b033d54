// The queues of all streams, and the decision when the first piece of work of a queue may run.
//
// The promises of the device: pieces of work on one stream run one after another in the order of
// the calls; a wait for an event ends after the work recorded by the event. Nothing else is
// promised.
//
// The adversary looks for programs that rely on more than the promises. The usual order of work is
// that of the host's calls, so the adversary prefers the opposite:
//   - Work runs only when it is demanded: a host thread waits for it or asks whether it is done, or
//     demanded work of another stream waits for it. Work that a program forgot to wait for is late.
//   - Before demanded work, later work on other streams that uses the same memory runs first, if
//     nothing orders the two. A block that is reused too early is overwritten.
//   - A demanded copy waits for a moment for calls of other host threads that might do harm.
// A program may go on without ever waiting, so work that nobody demands runs when its time is over.
//
// Not thread-safe: the machine's mutex guards it. It knows no threads and no clock: the time is an
// argument.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include <tests/device/runtime/settings.h>
#include <tests/device/runtime/work.h>

namespace sluice::pretend {

class Schedule final {
 public:
  explicit Schedule(size_t streams) : streams_(streams) {}

  // Takes effect for work that has not started. The pseudo-random delays begin anew.
  void set(const Settings& settings);

  Place add(StreamIndex stream, Work work, TimePoint now);
  // The place of the last piece of work that was added.
  Place end(StreamIndex stream) const { return {stream, streams_[stream].added}; }
  bool isDone(Place place) const { return streams_[place.stream].done >= place.number; }
  // True iff work is queued or running.
  bool isBusy(StreamIndex stream) const { return !isDone(end(stream)); }
  bool hasQueued(StreamIndex stream) const { return !streams_[stream].queue.empty(); }
  size_t size() const { return streams_.size(); }

  // Somebody waits for this place, or asks for it: the adversary may not hold it back any more.
  void demand(Place place, TimePoint now);

  // Returns when to look again at the first piece of work; empty if it may run now. May demand
  // work of other streams. REQUIRES: hasQueued(stream).
  std::optional<TimePoint> holdUntil(StreamIndex stream, TimePoint now);

  // Removes the first piece of work, which then runs until finish(). REQUIRES: hasQueued(stream).
  Work take(StreamIndex stream);
  void finish(StreamIndex stream, TimePoint now);

  // One sentence on the queue of a stream, for an error text.
  std::string describe(StreamIndex stream) const;

  // Grows with every change that can alter an answer of holdUntil() or isDone().
  uint64_t changes() const { return changes_; }

 private:
  struct Stream {
    std::deque<Work> queue;
    Work running;  // without its function; valid while done < running.number
    uint64_t added = 0;
    uint64_t done = 0;
    uint64_t wanted = 0;  // work up to this number is demanded
    TimePoint wantedSince;
    TimePoint headSince;                // when the first piece of work came to its place
    TimePoint finished;                 // when the last piece of work ended
    std::optional<TimePoint> released;  // kRandom: when the first piece of work may run
    uint64_t delays = 0;                // pseudo-random numbers used so far
  };

  TimePoint randomRelease(StreamIndex index, TimePoint now);
  std::optional<TimePoint> adversaryHold(StreamIndex index, TimePoint now);
  // Returns the end of the time for which undemanded work is held back.
  TimePoint endOfPatience(StreamIndex index, TimePoint now) const;
  // Returns the place of later work on another stream that conflicts with the first piece of work
  // of `index` and is not ordered after it; empty if there is none.
  std::optional<Place> laterRival(StreamIndex index) const;
  // True iff `place` is passed only after `first`. `explored` holds for each stream the number up
  // to which it is known not to be.
  bool isAfter(Place place, Place first, std::vector<uint64_t>& explored) const;

  Settings settings_;
  std::vector<Stream> streams_;
  uint64_t calls_ = 0;
  TimePoint lastCall_;
  uint64_t changes_ = 0;
};

}  // namespace sluice::pretend
