// The network of a simulation, as sockets see it: streams between hosts that take bytes at one end
// and give them out at the other, in order. Only numbers of bytes travel; the fabric above
// (sim_fabric.h) keeps the contents. Models of a network implement this.
#pragma once

#include <cstdint>
#include <optional>

#include <sluice/base/clock.h>
#include <sluice/base/units.h>

namespace sluice::sim {

enum class HostId : uint32_t {};
enum class StreamId : uint32_t {};  // counts the streams from 0
constexpr uint32_t index(HostId host) {
  return static_cast<uint32_t>(host);
}
constexpr uint32_t index(StreamId stream) {
  return static_cast<uint32_t>(stream);
}

// Hears of streams. Never called inside a call of the network.
class StreamUser {
 public:
  virtual ~StreamUser() = default;
  virtual void onWritable(StreamId stream) = 0;  // after a write() that took less than it was given
  virtual void onReadable(StreamId stream) = 0;  // more bytes are here
};

struct NetworkCounters {
  uint64_t bytes = 0;     // that arrived
  uint64_t segments = 0;  // sent, those that were sent again among them
  uint64_t dropped = 0;   // segments that a full queue or bad luck has lost
};

class Network {
 public:
  virtual ~Network() = default;

  // REQUIRES: `user` outlives the network.
  virtual StreamId open(HostId from, HostId to, StreamUser& user) = 0;

  // Takes as many of these bytes as there is room for now, and returns the number.
  virtual uint64_t write(StreamId stream, uint64_t bytes) = 0;

  // Returns the bytes that are at the receiver and have not been read.
  virtual uint64_t readable(StreamId stream) const = 0;
  virtual void read(StreamId stream, uint64_t bytes) = 0;  // REQUIRES: bytes <= readable()

  // Forgets all bytes of the stream; it carries no more.
  virtual void reset(StreamId stream) = 0;

  // Lets nothing from or to the host pass until then.
  virtual void cut(HostId host, TimePoint until) = 0;

  // Gives the host's link another rate in both directions, for segments that come from now on;
  // empty: its own rate again.
  virtual void setRate(HostId host, std::optional<Rate> rate) = 0;

  // Returns the time from one host to another when nothing is in the way.
  virtual Duration latency() const = 0;

  virtual NetworkCounters counters() const = 0;
};

}  // namespace sluice::sim
