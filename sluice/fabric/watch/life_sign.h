// What ranks tell each other about being alive, as bytes: the payload of messages with the flag kHeartbeat.
// Pure functions; any thread. Used by watched_fabric.cc only.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <sluice/base/clock.h>
#include <sluice/plan/ids.h>

namespace sluice::fabric {

// "I live." Carries what clock_offset.h needs: when this was sent, and the timestamp of the last heartbeat
// that came the other way, with how long ago that was.
struct Heartbeat {
  TimePoint sent;
  std::optional<TimePoint> echo;
  Duration held{};  // between the arrival of what is echoed and `sent`
  friend bool operator==(const Heartbeat&, const Heartbeat&) = default;
};

// "Rank k is lost", from one who knows, for those who do not talk to it.
struct LossNotice {
  Rank lost{};
  Rank witness{};   // who noticed
  std::string why;  // without "rank k is lost"
  friend bool operator==(const LossNotice&, const LossNotice&) = default;
};

using LifeSign = std::variant<Heartbeat, LossNotice>;

inline constexpr size_t kMaxLifeSignBytes = 1024;  // a longer reason is cut

std::vector<std::byte> toBytes(const LifeSign& sign);
std::optional<LifeSign> parseLifeSign(std::span<const std::byte> bytes);  // empty: not one of ours

}  // namespace sluice::fabric
