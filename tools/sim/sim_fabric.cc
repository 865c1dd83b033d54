#include <tools/sim/sim_fabric.h>

#include <utility>

#include <sluice/base/check.h>
#include <sluice/transport/fabric/node_fabric.h>
#include <tools/sim/sim_node.h>

namespace sluice::sim {

namespace {
constexpr unsigned kHappeningBitsOfHub = 4;
}

SimHub::SimHub(EventQueue& events, Network& network, const FabricOptions& options)
    : events_(events),
      network_(network),
      options_(options),
      nodes_(options.worldSize),
      presences_(options.worldSize, Presence::kUnseen) {}

SimHub::~SimHub() = default;

std::unique_ptr<fabric::Fabric> SimHub::join(Rank rank, HostLoop& loop,
                                             fabric::Receiver& receiver) {
  SLUICE_CHECK(index(rank) < nodes_.size() && find(rank) == nullptr, index(rank), nodes_.size());
  auto node = std::make_shared<SimNode>(*this, rank, loop, receiver);
  nodes_[index(rank)] = node.get();
  presences_[index(rank)] = Presence::kHere;
  return std::make_unique<fabric::NodeFabric>(std::move(node));
}

Flow& SimHub::open(Rank from, Rank to, fabric::Lane lane) {
  Flow flow{.from = from, .to = to, .lane = lane};
  flow.stream = network_.open(HostId{index(from)}, HostId{index(to)}, *this);
  SLUICE_CHECK(index(flow.stream) == flows_.size());
  return flows_.emplace_back(flow);
}

uint64_t SimHub::encode(Happening happening, uint32_t which) {
  return static_cast<uint64_t>(happening) | (uint64_t{which} << kHappeningBitsOfHub);
}

void SimHub::onEvent(uint64_t what) {
  const auto which = static_cast<uint32_t>(what >> kHappeningBitsOfHub);
  switch (static_cast<Happening>(what & ((1U << kHappeningBitsOfHub) - 1))) {
    case Happening::kReady: return write(flows_[which]);
    case Happening::kSent: {
      Flow& flow = flows_[which];
      flow.isSentQueued = false;
      if (SimNode* node = find(flow.from)) node->completeSent(flow);
      return;
    }
    case Happening::kReadable: {
      Flow& flow = flows_[which];
      flow.isReadQueued = false;
      if (SimNode* node = find(flow.to)) node->pump(flow);
      return;
    }
    case Happening::kNews: {
      const News news = std::move(news_.front());  // all travel as long
      news_.pop_front();
      if (SimNode* node = find(news.to)) node->hear(news.about, news.end, news.why);
      return;
    }
  }
}

void SimHub::append(Flow& flow, Flight* flight) {
  if (flow.last != nullptr) flow.last->next = flight;
  flow.last = flight;
  if (flow.writing == nullptr) flow.writing = flight;
  if (flow.unsent == nullptr) flow.unsent = flight;
  if (flow.reading == nullptr) flow.reading = flight;
  if (flight->readyAt <= events_.now()) return write(flow);
  if (flight->readyAt == kNever) return;
  events_.at(flight->readyAt, *this, encode(Happening::kReady, index(flow.stream)));
}

void SimHub::write(Flow& flow) {
  bool isAnyWritten = false;
  while (flow.writing != nullptr && flow.writing->readyAt <= events_.now()) {
    Flight& flight = *flow.writing;
    flight.written += network_.write(flow.stream, flight.streamBytes - flight.written);
    if (flight.written < flight.streamBytes) break;
    flight.bytes.assign(flight.payload.data, flight.payload.data + flight.payload.bytes);
    flight.isWritten = true;
    flow.writing = flight.next;
    isAnyWritten = true;
  }
  SimNode* const sender = find(flow.from);
  if (!isAnyWritten || sender == nullptr || std::exchange(flow.isSentQueued, true)) return;
  sender->loop().queue(*this, encode(Happening::kSent, index(flow.stream)));
}

void SimHub::onWritable(StreamId stream) {
  write(flows_[index(stream)]);
}

void SimHub::onReadable(StreamId stream) {
  Flow& flow = flows_[index(stream)];
  if (find(flow.to) != nullptr) return queueReading(flow);
  // The host has nobody who listens any more.
  tell(flow.from, flow.to, presence(flow.to), {});
}

void SimHub::queueReading(Flow& flow) {
  if (std::exchange(flow.isReadQueued, true)) return;
  find(flow.to)->loop().queue(*this, encode(Happening::kReadable, index(flow.stream)));
}

void SimHub::settle(Flow& flow, Flight* flight) {
  if (!flight->isSent || !flight->isDelivered) return;
  if (flow.last == flight) flow.last = nullptr;
  flights_.giveBack(flight);
}

void SimHub::tell(Rank to, Rank about, Presence end, const Status& why) {
  news_.push_back({about, to, end, why});
  events_.at(events_.now() + network_.latency(), *this, encode(Happening::kNews, 0));
}

void SimHub::ended(Rank rank, Presence end) {
  nodes_[index(rank)] = nullptr;
  presences_[index(rank)] = end;
}

void SimHub::delivered(const Flow& flow, const Flight& flight) {
  ++messages_;
  const wire::Header& header = flight.header;
  trace_.add({static_cast<uint64_t>(events_.now().time_since_epoch().count()),
              (uint64_t{index(flow.from)} << 32) | index(flow.to), index(header.step),
              (uint64_t{index(header.slice)} << 8) | static_cast<uint64_t>(header.stage)});
  if (SimNode* sender = find(flow.from)) sender->wasDelivered(flow.to);
}

}  // namespace sluice::sim
