// Writes what a rank's flight recorder would hold, for tests of what reads it. Tests only.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <sluice/observe/flight/ring.h>
#include <tools/trace/flight_reader.h>

namespace sluice::flight {

class FlightStory final {
 public:
  explicit FlightStory(uint32_t rank, uint32_t worldSize = 3, uint64_t run = 7)
      : ring_(*Ring::inMemory(
            {.rank = Rank{rank}, .worldSize = worldSize, .job = "story", .run = run},
            Ring::kLeastBytes)),
        began_(std::chrono::steady_clock::now()) {
    at(0, EventKind::kSessionBegins, {.name = ring_->nameOf("model")});
  }

  // Adds an event so many milliseconds after the beginning.
  FlightStory& at(int64_t ms, EventKind kind, Event event = {}) {
    event.kind = kind;
    event.session = 1;
    event.at = began_ + std::chrono::milliseconds(ms);
    ring_->add(event);
    return *this;
  }
  FlightStory& says(int64_t ms, EventKind kind, std::string_view text, Event event = {}) {
    event.bytes = ring_->addText(text);
    return at(ms, kind, event);
  }
  FlightStory& waits(int64_t ms, std::string_view layer, uint64_t step) {
    return at(ms, EventKind::kWaitBegins, {.step = step, .name = ring_->nameOf(layer)});
  }
  FlightStory& waitFails(int64_t ms, std::string_view layer, uint64_t step, std::string_view why) {
    return says(ms, EventKind::kWaitFails, why, {.step = step, .name = ring_->nameOf(layer)});
  }
  FlightStory& begins(int64_t ms, uint64_t step) {
    return at(ms, EventKind::kStepBegins, {.step = step});
  }
  // Rank `peer` has reached a step.
  FlightStory& hears(int64_t ms, uint32_t peer, uint64_t step) {
    return at(ms, EventKind::kPeerInStep, {.step = step, .peer = peer});
  }

  Ring& ring() { return *ring_; }
  std::span<const std::byte> bytes() const { return std::as_bytes(ring_->words()); }
  SavedFlight saved() const { return *parseFlight(bytes()); }

 private:
  std::unique_ptr<Ring> ring_;
  TimePoint began_;
};

}  // namespace sluice::flight
