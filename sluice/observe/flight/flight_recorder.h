// The flight recorder of a rank: its latest events in memory, and a file of them once the job goes
// wrong. It is on in every job of two ranks or more. `sluice trace flight` reads the files, and
// docs/trace.md describes them.
//
// Thread safety: any thread.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include <sluice/base/config.h>
#include <sluice/base/mutex.h>
#include <sluice/observe/flight/crash_dump.h>
#include <sluice/observe/flight/ring.h>

namespace sluice::flight {

class FlightRecorder final {
 public:
  // Returns null if flight-bytes is 0. A folder in which no file can be mapped is logged, and the
  // recorder works without it: a job does not end because of its recorder.
  static Result<std::unique_ptr<FlightRecorder>> begin(const base::Config& config,
                                                       const About& about);
  // Saves once more if something has failed. Otherwise the job has ended in good order, and its
  // file goes.
  ~FlightRecorder();

  Ring& ring() { return *ring_; }
  uint16_t newSession() { return sessions_.fetch_add(1); }  // counted from 1; 0 is the job

  // Notes that something has failed, and saves the file before it returns, unless that was done
  // several times a moment ago. Not on a loop, which does not wait for a disk.
  void failed(std::string_view why, uint16_t session = 0);
  // Does the same on a thread of its own.
  void failedSoon(std::string_view why, uint16_t session = 0);

  // A meeting of all ranks, as the calling thread or the loop takes part in it. The numbers at the
  // end of a key are kept apart, so that a name is kept once for all its meetings.
  struct Meeting {
    uint32_t name = 0;
    uint64_t number = 0;
  };
  Meeting meetingBegins(std::string_view key);
  void meetingEnds(const Meeting& meeting, const Status& status);

  const std::string& path() const { return path_; }

 private:
  static Result<std::unique_ptr<FlightRecorder>> make(const std::string& folder,
                                                      const std::string& name, const About& about,
                                                      size_t bytes);
  FlightRecorder(std::unique_ptr<Ring> ring, std::string path, bool isMapped);
  void note(std::string_view why, uint16_t session);
  void save(bool isLast);

  const std::unique_ptr<Ring> ring_;
  const std::string path_;
  const bool isMapped_;
  std::atomic<uint16_t> sessions_{1};
  std::atomic<bool> hasFailed_{false};
  std::atomic<bool> isSaverAtWork_{false};
  struct Saved {
    TimePoint last{};
    int count = 0;
    bool isTold = false;
  };
  base::Guarded<Saved> saved_;  // held while the file is written
  base::Guarded<std::thread> saver_;
  std::optional<CrashDump> onCrash_;  // last: it refers to the ring
};

// The name of a rank's file: sluice-flight-JOB-RANK-PID.
std::string flightFileName(const About& about, int pid);

}  // namespace sluice::flight
