// The signs of life that ranks send each other, as bytes: the payload of messages with the flag
// kHeartbeat. Pure functions; any thread. Used by watchman.cc and pulse_thread.cc only.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <sluice/base/clock.h>
#include <sluice/base/ids.h>
#include <sluice/base/whereabouts.h>

namespace sluice::fabric {

// "I live." Carries what clock_offset.h needs: when this was sent, and the timestamp of the last
// heartbeat that came the other way, with how long ago that was.
struct Heartbeat {
  TimePoint sent;
  std::optional<TimePoint> echo;
  Duration held{};  // between the arrival of the echoed heartbeat and `sent`
  friend bool operator==(const Heartbeat&, const Heartbeat&) = default;
};

// "Rank k is lost", from a rank that knows, for ranks that do not talk to it.
struct LossNotice {
  Rank lost{};
  Rank witness{};   // the rank that noticed
  std::string why;  // without "rank k is lost"
  friend bool operator==(const LossNotice&, const LossNotice&) = default;
};

// "My process lives, its work loop has not turned for `busy`, and its training thread is there."
// Travels between pulse threads only.
struct PulseBeat {
  Duration busy{};
  base::Whereabouts training{};
  friend bool operator==(const PulseBeat&, const PulseBeat&) = default;
};

using LifeSign = std::variant<Heartbeat, LossNotice, PulseBeat>;

// Times and durations of a sign lie within this of zero, whatever the sender says, so that sums and
// differences of a few of them cannot overflow. No clock that counts from a machine's start gets
// there.
inline constexpr Duration kFarthest = std::chrono::hours(24 * 365 * 16);

inline constexpr size_t kMaxLifeSignBytes = 1024;  // a longer reason is cut

std::vector<std::byte> toBytes(const LifeSign& sign);
std::optional<LifeSign> parseLifeSign(std::span<const std::byte> bytes);  // empty: not one of ours

}  // namespace sluice::fabric
