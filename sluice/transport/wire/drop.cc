#include <sluice/transport/wire/drop.h>

#include <numeric>

#include <fmt/format.h>

namespace sluice::wire {

std::string_view name(Drop drop) {
  switch (drop) {
    case Drop::kBadMagic: return "bad magic";
    case Drop::kBadVersion: return "bad version";
    case Drop::kBadCheck: return "bad check";
    case Drop::kTooLong: return "too long";
    case Drop::kOutOfSequence: return "out of sequence";
    case Drop::kWrongSource: return "wrong source";
    case Drop::kWrongDestination: return "wrong destination";
    case Drop::kWrongLane: return "wrong lane";
    case Drop::kWrongEpoch: return "wrong epoch";
    case Drop::kUnknownFlags: return "unknown flags";
    case Drop::kUnknownStage: return "unknown stage";
    case Drop::kUnknownDType: return "unknown dtype";
    case Drop::kRaggedLength: return "ragged length";
    case Drop::kReserved: return "reserved bytes";
    case Drop::kRefused: return "refused";
    case Drop::kNoRoom: return "no room";
    case Drop::kBadPayload: return "bad payload";
  }
  return "?";
}

uint64_t DropCounters::total() const {
  return std::accumulate(byReason.begin(), byReason.end(), uint64_t{0});
}

std::string DropCounters::toString() const {
  std::string text;
  // Only reasons that occurred are printed: in a healthy job the line says "none", and a single
  // count stands out.
  for (size_t i = 0; i < kDropReasons; ++i) {
    if (byReason[i] == 0) continue;
    text +=
        fmt::format("{}{} {}", text.empty() ? "" : ", ", name(static_cast<Drop>(i)), byReason[i]);
  }
  return text.empty() ? "none" : text;
}

}  // namespace sluice::wire
