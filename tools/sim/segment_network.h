// The model of a network for simulations: every stream sends segments, as many as its window
// allows, over the queues between the two hosts.
//
//   sender's streams, in turn -> its own line -> [rack's uplink -> other rack's downlink]
//                             -> the receiver's port on its switch -> receiver
//
// A host's own line takes the next segment when it is nearly free, so that streams share it
// equally. A full queue of a switch drops the segment. A dropped segment is sent again when a later
// one of its stream has arrived (fast retransmit), or after a timer. The receiver's reading opens
// the window again. Chance (loss, jitter) comes from the seed. A segment costs O(log) of the events
// ahead.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include <sluice/base/units.h>
#include <sluice/transport/fabric/unsent_bytes.h>
#include <tools/sim/event_queue.h>
#include <tools/sim/line.h>
#include <tools/sim/network.h>
#include <tools/sim/random.h>
#include <tools/sim/topology.h>

namespace sluice::sim {

enum class NetworkModel : uint8_t { kSegments, kSimgrid };

struct NetworkOptions {
  NetworkModel model = NetworkModel::kSegments;
  uint32_t hosts = 0;
  Topology topology{};
  Rate rate{10'000'000'000};  // of a host's line, frames and all, if the topology has no other
  Duration latency = std::chrono::microseconds(50);  // from host to host
  double jitter = 0;               // a segment's latency grows by up to this share of itself
  double loss = 0;                 // the share of segments that get lost besides
  uint64_t queueBytes = 0;         // of a switch's port; 0: as in a lab
  uint64_t segmentBytes = 16384;   // of one segment at most: what a host hands to its card at once
  uint64_t windowBytes = 4 << 20;  // of a stream at most, on their way or not yet read
  Duration retransmitAfter = std::chrono::milliseconds(10);
  uint64_t seed = 1;

  // Bytes that a stream's buffer may hold, as the tcp fabric has it.
  uint64_t unsentBytes() const { return fabric::unsentBytesPerConnection(hosts - 1); }
};

inline constexpr uint64_t kMss = 1448;  // payload of an Ethernet frame with TCP's timestamps

// The bytes that a stream may have on their way, as TCP's Reno has it: twice as much after every
// round trip at the beginning, one segment more later, and half after a loss. A value of its
// stream.
class CongestionWindow final {
 public:
  explicit CongestionWindow(uint64_t most) : most_(most), threshold_(most) {}

  uint64_t bytes() const { return bytes_; }

  void acknowledged(uint64_t bytes) {
    bytes_ += bytes_ < threshold_ ? bytes : std::max<uint64_t>(kMss * bytes / bytes_, 1);
    bytes_ = std::min(bytes_, most_);
  }
  void lost() {
    threshold_ = std::max(bytes_ / 2, 2 * kMss);
    bytes_ = threshold_;
  }

 private:
  uint64_t most_;
  uint64_t threshold_;
  uint64_t bytes_ = 10 * kMss;  // RFC 6928
};

class SegmentNetwork final : public Network, private EventTarget {
 public:
  // REQUIRES: `events` outlives this.
  SegmentNetwork(EventQueue& events, const NetworkOptions& options);

  StreamId open(HostId from, HostId to, StreamUser& user) override;
  uint64_t write(StreamId stream, uint64_t bytes) override;
  uint64_t readable(StreamId stream) const override;
  void read(StreamId stream, uint64_t bytes) override;
  void reset(StreamId stream) override;
  void cut(HostId host, TimePoint until) override { hosts_[sim::index(host)].cutUntil = until; }
  void setRate(HostId host, std::optional<Rate> rate) override;
  Duration latency() const override { return options_.latency; }
  NetworkCounters counters() const override { return counters_; }

 private:
  enum class Happening : uint8_t {
    kLineIsNearlyFree,
    kAcknowledged,
    kWritable,
    kAtSwitch,
    kArrived,
    kTimer
  };
  struct Host {
    Line line;
    Line port;
    std::deque<StreamId> turn{};  // streams that have something to send and may
    bool isWaiting = false;       // until the line is nearly free
    TimePoint cutUntil{};         // nothing passes until then
  };
  struct Rack {
    Line up;
    Line down;
  };
  struct Acknowledgement {
    TimePoint at;
    uint64_t bytes;
  };
  struct Stream {
    HostId from;
    HostId to;
    StreamUser* user;
    CongestionWindow window;
    uint64_t unsent = 0;   // bytes in the sender's buffer
    uint64_t sent = 0;     // the next byte to be sent
    uint64_t onWay = 0;    // bytes sent that the sender does not know to be read
    uint64_t arrived = 0;  // bytes that came in order
    uint64_t read = 0;
    uint64_t recovery = 0;  // losses before this byte have been answered already
    bool isInTurn = false;
    bool isWriterWaiting = false;
    bool isAcknowledgementAwaited = false;
    bool isReset = false;
    TimePoint lastAtSwitch{};                         // segments of a stream do not pass each other
    std::vector<Acknowledgement> acknowledgements{};  // from `firstAcknowledgement` on, by time
    size_t firstAcknowledgement = 0;
    std::vector<uint32_t> lost{};               // segments that have to be sent again
    std::map<uint64_t, uint64_t> outOfOrder{};  // bytes that came after a lost segment: begin, end
  };
  struct Segment {
    StreamId stream;
    uint32_t bytes;
    uint64_t begin;
    uint32_t generation;  // counts the uses of this place and the sendings of a segment
    uint8_t hop;          // switches passed
    TimePoint last;       // when its last byte is at the next switch, or at the receiver
  };

  void onEvent(uint64_t what) override;
  void happensAt(TimePoint when, Happening happening, uint32_t which, uint32_t generation = 0);

  void takeAcknowledgements(Stream& stream);
  void queueForSending(StreamId id);  // if there is something to send and the window is open
  void serveLine(HostId host);
  void sendNext(StreamId id);
  void launch(uint32_t segment);
  bool isLostOnItsWay(const Segment& segment);
  void atSwitch(uint32_t segment);
  Line* nextLine(const Segment& segment);  // null: the receiver is next
  void arrive(uint32_t segment);
  void drop(uint32_t segment);
  void sendAgain(uint32_t segment);
  uint32_t newSegment(StreamId stream, uint64_t begin, uint64_t bytes);
  void free(uint32_t segment);

  Stream& at(StreamId id) { return streams_[sim::index(id)]; }
  const Stream& at(StreamId id) const { return streams_[sim::index(id)]; }
  uint32_t rackOf(HostId host) const { return sim::index(host) / options_.topology.hostsPerRack; }
  Line lineBehindSwitch(Rate rate) const;

  EventQueue& events_;
  const NetworkOptions options_;
  Random chance_;
  std::vector<Host> hosts_;
  std::vector<Rack> racks_;
  std::deque<Stream> streams_;
  std::vector<Segment> segments_;
  std::vector<uint32_t> freeSegments_;
  NetworkCounters counters_;
};

}  // namespace sluice::sim
