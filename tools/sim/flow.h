// The messages on one stream of the simulated fabric, from one rank to another on one lane. Both
// ranks see the same flow: the sender writes its flights and completes them, the receiver reads
// them. Plain structs of sim_fabric.h and sim_node.h.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include <sluice/transport/fabric/fabric.h>
#include <tools/sim/network.h>

namespace sluice::sim {

inline constexpr TimePoint kNever = TimePoint::max();

// A message on its way. It is in one flow until both ends are through with it.
struct Flight {
  wire::Header header{};
  fabric::ConstBuffer payload{};   // the sender's memory, until all of it is written
  std::vector<std::byte> bytes{};  // a copy, from then on
  fabric::Done sent{};             // of the sender
  fabric::Landing landing{};       // of the receiver, once it was asked
  uint64_t streamBytes = 0;        // header and payload, as the network counts them
  uint64_t written = 0;
  uint64_t read = 0;
  TimePoint readyAt{};  // when the sender's host has worked on it
  Flight* next = nullptr;
  bool isAsked = false;    // the receiver knows the header
  bool isRefused = false;  // the receiver wants no payload
  bool isWritten = false;
  bool isSent = false;       // the sender's completion has run
  bool isDelivered = false;  // the receiver is through with it
};

struct Flow {
  StreamId stream{};
  Rank from{};
  Rank to{};
  fabric::Lane lane{};
  uint64_t sequence = 0;      // of the next message
  Flight* last = nullptr;     // the latest
  Flight* writing = nullptr;  // the first that is not all in the stream
  Flight* unsent = nullptr;   // the first whose completion has not run
  Flight* reading = nullptr;  // the first that the receiver is not through with
  bool isLater = false;       // the receiver has put the next message off
  bool isReadQueued = false;
  bool isSentQueued = false;
};

// Keeps the flights of a simulation, and uses them again.
class FlightPool final {
 public:
  Flight* take() {
    if (free_.empty()) return &all_.emplace_back();
    Flight* flight = free_.back();
    free_.pop_back();
    return flight;
  }
  // REQUIRES: both ends are through with it.
  void giveBack(Flight* flight) {
    std::vector<std::byte> bytes = std::move(flight->bytes);
    *flight = {};
    flight->bytes = std::move(bytes);
    free_.push_back(flight);
  }

 private:
  std::deque<Flight> all_;
  std::vector<Flight*> free_;
};

}  // namespace sluice::sim
