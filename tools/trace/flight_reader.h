// Reads the files of flight recorders (sluice/observe/flight/flight_format.h). A file may be cut
// short, damaged, or made by somebody else: every number in it is checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sluice/base/clock.h>
#include <sluice/base/status.h>
#include <sluice/observe/flight/flight_format.h>

namespace sluice::flight {

struct SavedEvent {
  EventKind kind{};
  uint8_t detail = 0;
  uint16_t session = 0;
  TimePoint at{};
  uint64_t step = 0;
  uint32_t name = 0;  // index of SavedFlight::names
  uint32_t slice = 0;
  uint32_t peer = kNobody;
  uint32_t bytes = 0;
  uint32_t text = 0;  // index of SavedFlight::texts
};

struct SavedFlight {
  std::string path{};
  uint32_t rank = 0;
  uint32_t worldSize = 1;
  uint32_t pid = 0;
  RunState state = RunState::kRunning;
  bool isMapped =
      false;  // the file was the memory itself, so it may be of a process that was killed
  uint64_t run = 0;
  TimePoint began{};
  Duration wallAhead{};
  std::string job{};
  std::string host{};
  std::vector<std::string> names{};  // number 0 is empty: the file does not say
  std::vector<std::string> texts{};  // number 0 is empty
  std::vector<SavedEvent> events{};  // in the order in which they happened
  uint64_t lost = 0;                 // earlier events, for which there was no room
  uint64_t damaged = 0;              // records that cannot be read

  const std::string& nameOf(const SavedEvent& event) const { return names[event.name]; }
  const std::string& textOf(const SavedEvent& event) const { return texts[event.text]; }
};

Result<SavedFlight> parseFlight(std::span<const std::byte> bytes);
Result<SavedFlight> readFlight(const std::string& path);

}  // namespace sluice::flight
