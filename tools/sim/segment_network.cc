#include <tools/sim/segment_network.h>

#include <algorithm>

#include <sluice/base/check.h>
#include <sluice/data/timing/bounds.h>
#include <tools/lab/scripts.h>

namespace sluice::sim {
namespace {

// An event's number: what happens in the lowest 4 bits, to which segment, stream or host in the
// next 28, and the generation of a segment above.
constexpr unsigned kHappeningBits = 4;
constexpr unsigned kWhichBits = 28;

// The segments that a host's line holds: enough to stay busy, and few enough that streams take
// turns.
constexpr uint64_t kSegmentsInLine = 2;

}  // namespace

SegmentNetwork::SegmentNetwork(EventQueue& events, const NetworkOptions& options)
    : events_(events), options_(options), chance_(options.seed) {
  const Topology& topology = options.topology;
  for (uint32_t host = 0; host < options.hosts; ++host) {
    const LinkRates rates = topology.ofHost(host, options.rate);
    const Line own(timing::payloadRate(rates.out), kSegmentsInLine * options.segmentBytes);
    hosts_.push_back({own, lineBehindSwitch(rates.in)});
  }
  for (uint32_t rack = 0; rack < topology.racksFor(options.hosts); ++rack) {
    const LinkRates rates = topology.ofRack(rack, options.rate);
    racks_.push_back({lineBehindSwitch(rates.out), lineBehindSwitch(rates.in)});
  }
}

// A switch has as much room for a faster line as the time of its bytes asks for.
Line SegmentNetwork::lineBehindSwitch(Rate rate) const {
  const uint64_t ofHost =
      options_.queueBytes == 0 ? lab::shapeFor(options_.rate).queueBytes : options_.queueBytes;
  const double share =
      static_cast<double>(rate.bitsPerSecond) / static_cast<double>(options_.rate.bitsPerSecond);
  return {timing::payloadRate(rate),
          static_cast<uint64_t>(static_cast<double>(ofHost) * std::max(share, 1.0))};
}

void SegmentNetwork::setRate(HostId id, std::optional<Rate> rate) {
  const LinkRates own = options_.topology.ofHost(sim::index(id), options_.rate);
  Host& host = hosts_[sim::index(id)];
  host.line.setRate(timing::payloadRate(rate.value_or(own.out)));
  host.port.setRate(timing::payloadRate(rate.value_or(own.in)));
}

StreamId SegmentNetwork::open(HostId from, HostId to, StreamUser& user) {
  const StreamId id{static_cast<uint32_t>(streams_.size())};
  SLUICE_CHECK(sim::index(id) < (1U << kWhichBits));
  streams_.push_back({from, to, &user, CongestionWindow(options_.windowBytes)});
  return id;
}

uint64_t SegmentNetwork::write(StreamId id, uint64_t bytes) {
  Stream& stream = at(id);
  if (stream.isReset) return 0;
  const uint64_t room = options_.unsentBytes() - std::min(options_.unsentBytes(), stream.unsent);
  const uint64_t taken = std::min(bytes, room);
  stream.unsent += taken;
  stream.isWriterWaiting = taken < bytes;
  queueForSending(id);
  return taken;
}

uint64_t SegmentNetwork::readable(StreamId id) const {
  return at(id).arrived - at(id).read;
}

void SegmentNetwork::read(StreamId id, uint64_t bytes) {
  Stream& stream = at(id);
  SLUICE_DCHECK(bytes <= readable(id));
  stream.read += bytes;
  if (stream.isReset) return;
  const TimePoint known = events_.now() + options_.latency;
  auto& list = stream.acknowledgements;
  if (list.size() > stream.firstAcknowledgement && list.back().at == known) {
    list.back().bytes += bytes;
  } else {
    list.push_back({known, bytes});
  }
  // The sender looks at acknowledgements when it has something to send; it needs to be woken only
  // if it waits for them.
  if (stream.unsent > 0 && !stream.isInTurn) queueForSending(id);
}

void SegmentNetwork::reset(StreamId id) {
  Stream& stream = at(id);
  stream.isReset = true;
  stream.unsent = 0;
  stream.read = stream.arrived;
  for (const uint32_t segment : stream.lost) free(segment);
  stream.lost.clear();
  stream.outOfOrder.clear();
}

void SegmentNetwork::happensAt(TimePoint when, Happening happening, uint32_t which,
                               uint32_t generation) {
  events_.at(when, *this,
             static_cast<uint64_t>(happening) | (uint64_t{which} << kHappeningBits) |
                 (uint64_t{generation} << (kHappeningBits + kWhichBits)));
}

void SegmentNetwork::onEvent(uint64_t what) {
  const auto which = static_cast<uint32_t>((what >> kHappeningBits) & ((1U << kWhichBits) - 1));
  const auto generation = static_cast<uint32_t>(what >> (kHappeningBits + kWhichBits));
  switch (static_cast<Happening>(what & ((1U << kHappeningBits) - 1))) {
    case Happening::kLineIsNearlyFree:
      hosts_[which].isWaiting = false;
      return serveLine(HostId{which});
    case Happening::kAcknowledged:
      streams_[which].isAcknowledgementAwaited = false;
      return queueForSending(StreamId{which});
    case Happening::kWritable:
      if (!streams_[which].isReset) streams_[which].user->onWritable(StreamId{which});
      return;
    case Happening::kAtSwitch: return atSwitch(which);
    case Happening::kArrived: return arrive(which);
    case Happening::kTimer:
      if (segments_[which].generation == generation) sendAgain(which);
      return;
  }
}

void SegmentNetwork::takeAcknowledgements(Stream& stream) {
  auto& list = stream.acknowledgements;
  size_t& first = stream.firstAcknowledgement;
  while (first < list.size() && list[first].at <= events_.now()) {
    stream.onWay -= list[first].bytes;
    stream.window.acknowledged(list[first].bytes);
    ++first;
  }
  if (first < list.size()) return;
  list.clear();
  first = 0;
}

void SegmentNetwork::queueForSending(StreamId id) {
  Stream& stream = at(id);
  if (stream.isInTurn || stream.unsent == 0) return;
  takeAcknowledgements(stream);
  if (stream.onWay >= stream.window.bytes()) {
    const auto& list = stream.acknowledgements;
    if (stream.firstAcknowledgement == list.size() || stream.isAcknowledgementAwaited) return;
    stream.isAcknowledgementAwaited = true;
    return happensAt(list[stream.firstAcknowledgement].at, Happening::kAcknowledged,
                     sim::index(id));
  }
  stream.isInTurn = true;
  hosts_[sim::index(stream.from)].turn.push_back(id);
  serveLine(stream.from);
}

void SegmentNetwork::serveLine(HostId id) {
  Host& host = hosts_[sim::index(id)];
  if (host.isWaiting) return;
  // The others wait while a stream is served: queueing it again comes back here.
  host.isWaiting = true;
  while (!host.turn.empty()) {
    const TimePoint nearlyFree = host.line.freeAt() - host.line.queue() / kSegmentsInLine;
    if (nearlyFree > events_.now())
      return happensAt(nearlyFree, Happening::kLineIsNearlyFree, sim::index(id));
    const StreamId next = host.turn.front();
    host.turn.pop_front();
    at(next).isInTurn = false;
    sendNext(next);
    queueForSending(next);
  }
  host.isWaiting = false;
}

void SegmentNetwork::sendNext(StreamId id) {
  Stream& stream = at(id);
  const uint64_t room = stream.window.bytes() - std::min(stream.window.bytes(), stream.onWay);
  const uint64_t bytes =
      std::min({stream.unsent, options_.segmentBytes, std::max(room, uint64_t{kMss})});
  if (bytes == 0) return;  // the stream was reset in the meantime
  const uint32_t segment = newSegment(id, stream.sent, bytes);
  stream.unsent -= bytes;
  stream.sent += bytes;
  stream.onWay += bytes;
  launch(segment);
  if (stream.isWriterWaiting && stream.unsent <= options_.unsentBytes() / 2) {
    stream.isWriterWaiting = false;
    happensAt(events_.now(), Happening::kWritable, sim::index(id));
  }
}

void SegmentNetwork::launch(uint32_t index) {
  Segment& segment = segments_[index];
  Stream& stream = at(segment.stream);
  ++counters_.segments;
  segment.hop = 0;
  Line& line = hosts_[sim::index(stream.from)].line;
  const TimePoint begin = std::max(events_.now(), line.freeAt());
  // A host does not drop its own segments.
  const Passage passage = line.pass(begin, begin, segment.bytes).value();
  Duration latency = options_.latency;
  if (options_.jitter > 0) {
    latency += Duration(static_cast<Duration::rep>(static_cast<double>(latency.count()) *
                                                   options_.jitter * chance_.uniform()));
  }
  const TimePoint first = std::max(passage.first + latency, stream.lastAtSwitch);
  stream.lastAtSwitch = first;
  segment.last = first + (passage.last - passage.first);
  happensAt(first, Happening::kAtSwitch, index);
}

Line* SegmentNetwork::nextLine(const Segment& segment) {
  const Stream& stream = at(segment.stream);
  const bool isInRack = racks_.empty() || rackOf(stream.from) == rackOf(stream.to);
  switch (segment.hop + (isInRack ? 2 : 0)) {
    case 0: return &racks_[rackOf(stream.from)].up;
    case 1: return &racks_[rackOf(stream.to)].down;
    case 2: return &hosts_[sim::index(stream.to)].port;
    default: return nullptr;
  }
}

bool SegmentNetwork::isLostOnItsWay(const Segment& segment) {
  const Stream& stream = at(segment.stream);
  const TimePoint cutUntil =
      std::max(hosts_[sim::index(stream.from)].cutUntil, hosts_[sim::index(stream.to)].cutUntil);
  if (events_.now() < cutUntil) return true;
  return options_.loss > 0 && segment.hop == 0 && chance_.uniform() < options_.loss;
}

void SegmentNetwork::atSwitch(uint32_t index) {
  Segment& segment = segments_[index];
  const Stream& stream = at(segment.stream);
  if (stream.isReset) return free(index);
  if (isLostOnItsWay(segment)) return drop(index);
  const auto passage = nextLine(segment)->pass(events_.now(), segment.last, segment.bytes);
  if (!passage) return drop(index);
  ++segment.hop;
  segment.last = passage->last;
  if (nextLine(segment) != nullptr) return happensAt(passage->first, Happening::kAtSwitch, index);
  happensAt(passage->last, Happening::kArrived, index);
}

void SegmentNetwork::arrive(uint32_t index) {
  const Segment segment = segments_[index];
  free(index);
  Stream& stream = at(segment.stream);
  if (stream.isReset) return;
  counters_.bytes += segment.bytes;
  if (segment.begin != stream.arrived) {
    stream.outOfOrder.emplace(segment.begin, segment.begin + segment.bytes);
    // The sender hears of the gap: what is missing before this segment is lost.
    for (const uint32_t missing : stream.lost) {
      if (segments_[missing].begin < segment.begin)
        happensAt(events_.now() + options_.latency, Happening::kTimer, missing,
                  segments_[missing].generation);
    }
    return;
  }
  stream.arrived += segment.bytes;
  for (auto next = stream.outOfOrder.begin();
       next != stream.outOfOrder.end() && next->first == stream.arrived;
       next = stream.outOfOrder.erase(next))
    stream.arrived = next->second;
  stream.user->onReadable(segment.stream);
}

void SegmentNetwork::drop(uint32_t index) {
  const Segment& segment = segments_[index];
  Stream& stream = at(segment.stream);
  ++counters_.dropped;
  stream.lost.push_back(index);
  if (segment.begin >= stream.recovery) {
    stream.recovery = stream.sent;
    stream.window.lost();
  }
  happensAt(events_.now() + options_.retransmitAfter, Happening::kTimer, index, segment.generation);
}

void SegmentNetwork::sendAgain(uint32_t index) {
  ++segments_[index].generation;  // other timers of this loss have nothing to do
  std::erase(at(segments_[index].stream).lost, index);
  launch(index);
}

uint32_t SegmentNetwork::newSegment(StreamId stream, uint64_t begin, uint64_t bytes) {
  if (freeSegments_.empty()) {
    freeSegments_.push_back(static_cast<uint32_t>(segments_.size()));
    SLUICE_CHECK(freeSegments_.back() < (1U << kWhichBits));
    segments_.emplace_back();
  }
  const uint32_t index = freeSegments_.back();
  freeSegments_.pop_back();
  segments_[index] = {.stream = stream,
                      .bytes = static_cast<uint32_t>(bytes),
                      .begin = begin,
                      .generation = segments_[index].generation,
                      .hop = 0,
                      .last = {}};
  return index;
}

void SegmentNetwork::free(uint32_t index) {
  ++segments_[index].generation;
  freeSegments_.push_back(index);
}

}  // namespace sluice::sim
