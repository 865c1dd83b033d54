// The network model over SimGrid 3.32, a library of its own (simgrid_network.h says why).
//
// Every stream is one flow of SimGrid, which sends one write() after the other and is suspended
// when it has nothing to send. SimGrid's own engine, with its clock and its actors, does not run:
// our event queue drives SimGrid's network model in *steps*. A step lets the flows move on since
// the step before, takes the writes that are through, starts the next ones, and asks SimGrid when
// the next one will be through. Steps are at least half a latency apart, since SimGrid solves for
// all flows again at each. Latency is added behind the flow, so that it does not keep the next
// write from following at once.
#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>
#include <simgrid/kernel/resource/Model.hpp>
#include <simgrid/kernel/resource/NetworkModelIntf.hpp>
#include <simgrid/s4u.hpp>

#include <sluice/data/timing/bounds.h>
#include <tools/sim/simgrid_network.h>

namespace sluice::sim {
namespace {

namespace s4u = simgrid::s4u;
using simgrid::kernel::resource::Action;
using simgrid::kernel::resource::Model;

constexpr int kStepsPerLatency = 2;

std::unique_ptr<s4u::Engine> makeEngine() {
  // crosstraffic: acknowledgements take no room here, as in segment_network.h.
  // Full: the faster way, Lazy, lets more bytes pass than a line can carry.
  static std::array arguments{"sluice", "--cfg=network/model:CM02", "--cfg=network/crosstraffic:no",
                              "--cfg=network/optim:Full", "--log=root.thresh:critical"};
  int count = static_cast<int>(arguments.size());
  auto list = arguments;  // the engine moves them
  return std::make_unique<s4u::Engine>(&count, const_cast<char**>(list.data()));
}

class SimgridNetwork final : public Network, private EventTarget {
 public:
  SimgridNetwork(EventQueue& events, const NetworkOptions& options)
      : events_(events), options_(options), engine_(makeEngine()) {
    const double bytesPerSecond =
        static_cast<double>(timing::payloadRate(options.rate).bitsPerSecond) / 8;
    s4u::NetZone* zone = s4u::create_star_zone("switch");
    for (uint32_t i = 0; i < options.hosts; ++i) {
      s4u::Host* host = zone->create_host(fmt::format("host{}", i), /*speed=*/1e9);
      auto* link = zone->create_split_duplex_link(fmt::format("line{}", i), bytesPerSecond);
      link->set_latency(0.0)->seal();
      zone->add_route(host->get_netpoint(), nullptr, nullptr, nullptr,
                      {s4u::LinkInRoute(link, s4u::LinkInRoute::Direction::UP)}, true);
      hosts_.push_back(host);
    }
    zone->seal();
    engine_->seal_platform();
    model_ = dynamic_cast<Model*>(zone->get_network_model());
  }

  StreamId open(HostId from, HostId to, StreamUser& user) override {
    const StreamId id{static_cast<uint32_t>(streams_.size())};
    Stream stream{.user = &user};
    stream.comm = s4u::Comm::sendto_init(hosts_[sim::index(from)], hosts_[sim::index(to)]);
    stream.comm->set_payload_size(1)->detach();
    stream.flow = &model_->get_started_action_set()->back();
    idle(*stream.flow);
    byFlow_.emplace(stream.flow, id);
    streams_.push_back(std::move(stream));
    return id;
  }

  uint64_t write(StreamId id, uint64_t bytes) override {
    Stream& stream = at(id);
    if (stream.isReset) return 0;
    const uint64_t taken =
        std::min(bytes, options_.unsentBytes() - std::min(options_.unsentBytes(), stream.unsent));
    stream.isWriterWaiting = taken < bytes;
    if (taken == 0) return 0;
    stream.unsent += taken;
    stream.writes.push_back(taken);
    wake(id);
    return taken;
  }

  uint64_t readable(StreamId id) const override { return at(id).arrived - at(id).read; }
  void read(StreamId id, uint64_t bytes) override {
    at(id).read += bytes;
    wake(id);
  }

  void reset(StreamId id) override {
    Stream& stream = at(id);
    stream.isReset = true;
    stream.writes.clear();
    stream.unsent = 0;
    if (stream.flying > 0) idle(*stream.flow);
    stream.flying = 0;
  }

  // simulate() refuses faults with this network.
  void cut(HostId /*host*/, TimePoint /*until*/) override {}
  void setRate(HostId /*host*/, std::optional<Rate> /*rate*/) override {}
  Duration latency() const override { return options_.latency; }
  NetworkCounters counters() const override { return counters_; }

 private:
  enum class Happening : uint8_t { kStep, kWritable, kArrived };
  struct Stream {
    StreamUser* user;
    s4u::CommPtr comm{};     // owns the flow
    Action* flow = nullptr;  // the part of it that SimGrid's model knows
    std::deque<uint64_t> writes{};
    uint64_t unsent = 0;  // their bytes
    uint64_t flying = 0;  // bytes that the flow sends now
    std::deque<uint64_t> onWay{};
    uint64_t sent = 0;
    uint64_t arrived = 0;
    uint64_t read = 0;
    bool isWaking = false;  // in toStart_
    bool isWriterWaiting = false;
    bool isReset = false;
  };

  Stream& at(StreamId id) { return streams_[sim::index(id)]; }
  const Stream& at(StreamId id) const { return streams_[sim::index(id)]; }
  Duration leastStep() const { return options_.latency / kStepsPerLatency; }

  void onEvent(uint64_t what) override {
    const auto which = what >> 2U;
    switch (static_cast<Happening>(what & 3U)) {
      case Happening::kStep:
        if (which == stepsAsked_) step();
        return;
      case Happening::kWritable: return streams_[which].user->onWritable(StreamId(which));
      case Happening::kArrived: return arrive(StreamId(which));
    }
  }
  void happensAt(TimePoint when, Happening happening, uint64_t which) {
    events_.at(when, *this, (which << 2U) | static_cast<uint64_t>(happening));
  }

  // SimGrid's solver leaves a flow of penalty 0 out.
  static void idle(Action& flow) {
    flow.set_sharing_penalty(0);
    flow.set_state(Action::State::IGNORED);
  }

  // Lets the stream begin with the next step, if it has something to send and may.
  void wake(StreamId id) {
    Stream& stream = at(id);
    if (stream.isWaking || stream.flying > 0 || stream.writes.empty()) return;
    if (stream.sent - stream.read >= options_.windowBytes) return;
    stream.isWaking = true;
    toStart_.push_back(id);
    stepAt(std::max(events_.now(), lastStep_ + leastStep()));
  }

  void stepAt(TimePoint when) {
    if (when >= nextStep_) return;
    nextStep_ = when;
    happensAt(when, Happening::kStep, ++stepsAsked_);
  }

  void step() {
    const double now = base::seconds(events_.now().time_since_epoch());
    model_->update_actions_state(now, base::seconds(events_.now() - lastStep_));
    lastStep_ = events_.now();
    nextStep_ = TimePoint::max();
    const auto& through = *model_->get_finished_action_set();
    while (!through.empty()) finish(byFlow_.at(&through.front()));
    for (const StreamId id : std::exchange(toStart_, {})) start(id);
    const double next = model_->next_occurring_event(now);
    if (next < 0) return;
    const Duration after(static_cast<Duration::rep>(std::ceil(next * 1e9)));
    stepAt(lastStep_ + std::max(after, leastStep()));
  }

  void finish(StreamId id) {
    Stream& stream = at(id);
    idle(*stream.flow);  // it is no longer among those that are through
    stream.onWay.push_back(std::exchange(stream.flying, 0));
    happensAt(lastStep_ + options_.latency, Happening::kArrived, sim::index(id));
    wake(id);
  }

  // Small writes go together, as they would in a segment.
  void start(StreamId id) {
    Stream& stream = at(id);
    stream.isWaking = false;
    if (stream.isReset) return;
    do {
      stream.flying += stream.writes.front();
      stream.writes.pop_front();
    } while (!stream.writes.empty() &&
             stream.flying + stream.writes.front() <= options_.segmentBytes);
    stream.unsent -= stream.flying;
    stream.sent += stream.flying;
    ++counters_.segments;
    stream.flow->set_cost(static_cast<double>(stream.flying));
    stream.flow->set_remains(static_cast<double>(stream.flying));
    stream.flow->set_state(Action::State::STARTED);
    stream.flow->set_sharing_penalty(1);
    if (stream.isWriterWaiting && stream.unsent <= options_.unsentBytes() / 2) {
      stream.isWriterWaiting = false;
      happensAt(lastStep_, Happening::kWritable, sim::index(id));
    }
  }

  void arrive(StreamId id) {
    Stream& stream = at(id);
    const uint64_t bytes = stream.onWay.front();
    stream.onWay.pop_front();
    if (stream.isReset) return;
    counters_.bytes += bytes;
    stream.arrived += bytes;
    stream.user->onReadable(id);
  }

  EventQueue& events_;
  const NetworkOptions options_;
  const std::unique_ptr<s4u::Engine> engine_;
  Model* model_ = nullptr;
  std::vector<s4u::Host*> hosts_;
  std::deque<Stream> streams_;  // go before the engine
  std::unordered_map<const Action*, StreamId> byFlow_;
  std::vector<StreamId> toStart_;
  TimePoint lastStep_{};
  TimePoint nextStep_ = TimePoint::max();
  uint64_t stepsAsked_ = 0;  // the latest is the one that counts
  NetworkCounters counters_;
};

}  // namespace
}  // namespace sluice::sim

extern "C" __attribute__((visibility("default"))) sluice::sim::Network* sluiceMakeSimgridNetwork(
    sluice::sim::EventQueue& events, const sluice::sim::NetworkOptions& options) {
  return new sluice::sim::SimgridNetwork(events, options);
}
