// One message that waits to be sent, and the order in which waiting messages go. Plain values.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include <sluice/base/clock.h>
#include <sluice/base/ids.h>
#include <sluice/observer.h>

namespace sluice::queue {

struct Send {
  Rank to{};
  uint64_t bytes = 0;
  Step step{};                 // earlier first: a rank that is ahead must not hold up others
  uint32_t priority = 0;       // the layer's place in the forward pass; lower is more urgent
  Stage stage = Stage::kPush;  // a push goes before a publication of the same layer
  uint64_t turn = 0;           // among those of one layer and stage; lower first (plan/order.h)
  uint64_t tag = 0;            // the caller's: identifies this message

  std::string toString()
      const {  // "push of step 5, priority 2 to rank 3, 200000 bytes, turn 1, tag 17"
    return fmt::format("{} of step {}, priority {} to rank {}, {} bytes, turn {}, tag {}",
                       sluice::name(stage), step, priority, to, bytes, turn, tag);
  }
  friend bool operator==(const Send&, const Send&) = default;
};

enum class SendOrder : uint8_t { kFifo, kPriority };

constexpr std::string_view name(SendOrder order) {
  return order == SendOrder::kFifo ? "fifo" : "priority";
}

// A send in a queue.
struct Waiting {
  Send send{};
  uint64_t arrival = 0;     // unique: breaks ties first-in first-out
  Duration behindBefore{};  // the result of Inversion::mark when the send became ready
};

// The smaller key goes first. The order is strict: arrivals are unique, so no two keys are equal
// and every run gives the same result.
struct SendKey {
  Step step;
  uint32_t priority;
  Stage stage;
  uint64_t turn;
  uint64_t arrival;
  auto operator<=>(const SendKey&) const = default;
};

constexpr SendKey keyOf(SendOrder order, const Waiting& w) {
  if (order == SendOrder::kFifo) return {Step{}, 0, Stage::kReady, 0, w.arrival};
  return {w.send.step, w.send.priority, w.send.stage, w.send.turn, w.arrival};
}

}  // namespace sluice::queue
