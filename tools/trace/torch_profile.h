// Traces that torch.profiler exports, which are in Chrome's trace event format too. Files may hold
// any bytes. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include <sluice/base/clock.h>
#include <sluice/base/ids.h>
#include <sluice/base/status.h>

namespace sluice::trace {

// A profile without its events, which may be many: forEachEvent() reads them again.
struct TorchProfile {
  std::string path{};
  std::optional<Rank> rank{};  // empty: the profiled process was in no process group
  Duration base{};             // the events' times count from this moment of the wall clock
  Duration first{}, last{};    // of all events, by the wall clock, since 1970
  uint64_t events = 0;
  // By the process and thread that the file gives: the number of a track, from 0 on in the order of
  // the file, and its name.
  struct Thread {
    size_t track = 0;
    std::string name{};
  };
  std::map<std::string, Thread> threads{};
};

// One event of a profile.
struct TorchEvent {
  size_t track = 0;
  Duration at{};  // by the wall clock, since 1970
  // Tells which events belong together, as the beginning and end of an arrow; only in its profile.
  std::optional<std::string> id{};
  std::string members{};  // all others, as JSON, without brackets: "ph":"X","name":"aten::mm"
};

// Reads a profile. The error says what to do with another file.
Result<TorchProfile> readTorchProfile(const std::string& path);

// Reads the file again and hands out its events, in their order.
Status forEachEvent(const TorchProfile& profile,
                    const std::function<void(const TorchEvent&)>& take);

}  // namespace sluice::trace
