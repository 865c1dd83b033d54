#include <tools/sim/rack_simulation.h>

#include <algorithm>
#include <deque>
#include <queue>
#include <vector>

#include <fmt/format.h>

#include <sluice/base/options.h>
#include <sluice/transport/wire/header.h>
#include <tools/sim/event_queue.h>

namespace sluice::sim {
namespace {

// The model / its largest piece. An urgent piece may have to wait for one of that size.
constexpr uint64_t kPiecesOfModel = 64;

constexpr double kNanoseconds = 1e9;

// Neighbouring slices that travel together, as one host sees them.
struct Piece {
  uint32_t tensor = 0;
  double bytes = 0;
  double messages = 0;
  // Racks that are through with it in this step.
  uint32_t pushed = 0;
  uint32_t answered = 0;
};

std::vector<Piece> piecesOf(const plan::Plan& plan, uint64_t shrink) {
  const uint64_t most = plan.model().bytes() * shrink / kPiecesOfModel;
  std::vector<Piece> pieces;
  const plan::Slice* before = nullptr;
  for (const plan::Slice& slice : plan.slices()) {
    const auto bytes = static_cast<double>(plan.bytesOf(slice) * shrink);
    const bool isTogether = before != nullptr && before->tensor == slice.tensor &&
                            before->chunk == slice.chunk &&
                            pieces.back().bytes + bytes <= static_cast<double>(most);
    if (!isTogether) pieces.push_back({.tensor = index(slice.tensor)});
    pieces.back().bytes += bytes;
    pieces.back().messages += 1;
    before = &slice;
  }
  return pieces;
}

// Returns the bytes of the busiest server / those of the mean.
double skewOf(const plan::Plan& plan, uint32_t hosts) {
  std::vector<uint64_t> bytes(hosts);
  for (const plan::Slice& slice : plan.slices()) bytes[index(slice.server)] += plan.bytesOf(slice);
  return static_cast<double>(std::ranges::max(bytes)) * hosts /
         static_cast<double>(plan.model().bytes());
}

class RackJob final : private EventTarget {
 public:
  RackJob(const SimulationOptions& options, const plan::Plan& plan, uint64_t shrink,
          std::span<const timing::Layer> layers)
      : options_(options),
        plan_(plan),
        layers_(layers),
        hosts_(options.network.hosts),
        hostsPerRack_(rackSize(options.network)),
        skew_(skewOf(plan, hosts_)),
        credit_(static_cast<double>(options.config.bytes(option::kCredit))),
        pieces_(piecesOf(plan, shrink)),
        piecesOfTensor_(layers.size()),
        racks_(hosts_ / hostsPerRack_) {
    for (uint32_t i = 0; i < pieces_.size(); ++i) piecesOfTensor_[pieces_[i].tensor].push_back(i);
    for (Rack& rack : racks_) rack.missing.resize(layers.size());
  }

  static uint32_t rackSize(const NetworkOptions& network) {
    return network.topology.isStar() ? kHostsTogether : network.topology.hostsPerRack;
  }

  Status run() {
    for (uint32_t rack = 0; rack < racks_.size(); ++rack) {
      racks_[rack].factor = factor(rack, 0);
      racks_[rack].ends.push_back(events_.now());
      goForward(rack);
    }
    uint64_t events = 0;
    while (events_.runNext()) {
      constexpr uint64_t kBetweenLooks = 1 << 16;
      if (++events % kBetweenLooks == 0 && options_.isInterrupted())
        return {Code::kCancelled, "interrupted"};
    }
    return base::ok();
  }

  void report(SimulationResult& result) const {
    TimePoint begin{};
    TimePoint end{};
    Duration busiest{};
    for (const Rack& rack : racks_) {
      begin = std::max(begin, rack.ends[static_cast<size_t>(options_.warmUp)]);
      end = std::max(end, rack.ends.back());
      busiest = std::max(busiest, rack.busy);
    }
    result.iterationSeconds = base::seconds(end - begin) / options_.iterations;
    result.busiestLoop = base::seconds(busiest) / base::seconds(events_.now().time_since_epoch());
    for (const Piece& piece : pieces_) {
      result.messages += 2 * piece.messages * (hosts_ - 1);
      result.bytes += 2 * (piece.bytes + piece.messages * wire::kHeaderBytes) * (hosts_ - 1);
    }
    result.traceHash = trace_.value();
  }

 private:
  enum class Happening : uint8_t {
    kComputedForward,
    kComputedBackward,
    kDidOtherThings,
    kReadyToPush,    // the hosts have worked on it
    kReadyToAnswer,  // the same, as servers
    kLineIsFree,
    kAllPushed,
    kAllAnswered,
    kHere  // the hosts have worked on the result
  };
  struct Task {
    uint32_t piece;
    bool isAnswer;
    uint64_t order;
    friend bool operator<(const Task& a, const Task& b) {  // less urgent
      return a.piece != b.piece ? a.piece > b.piece : a.order > b.order;
    }
  };
  struct Rack {
    // The training threads, which wait for the slowest of them.
    uint32_t tensor = 0;
    double factor = 1;
    bool isWaiting = false;           // for the gate of `tensor`
    std::vector<TimePoint> ends{};    // of backward passes, as of ReplayedWorker
    std::vector<uint32_t> missing{};  // pieces by tensor
    // The hosts' lines and the uplink.
    std::priority_queue<Task> waiting{};
    std::deque<Task> handedOver{};  // the first is on the lines
    double bytesHandedOver = 0;
    // The hosts' loops.
    TimePoint loopFreeAt{};
    Duration busy{};
  };

  void happensAt(TimePoint when, Happening happening, uint32_t rack, uint32_t piece = 0) {
    events_.at(
        when, *this,
        static_cast<uint64_t>(happening) | (uint64_t{rack} << 4U) | (uint64_t{piece} << 32U));
  }
  void onEvent(uint64_t what) override {
    const auto rack = static_cast<uint32_t>(what >> 4U) & 0xfffffffU;
    const auto piece = static_cast<uint32_t>(what >> 32U);
    switch (static_cast<Happening>(what & 15U)) {
      case Happening::kComputedForward: ++racks_[rack].tensor; return goForward(rack);
      case Happening::kComputedBackward: handOver(rack); return goBackward(rack);
      case Happening::kDidOtherThings: return goForward(rack);
      case Happening::kReadyToPush: return send(rack, piece, false);
      case Happening::kReadyToAnswer: return send(rack, piece, true);
      case Happening::kLineIsFree: return sent(rack);
      case Happening::kAllPushed: return allPushed(piece);
      case Happening::kAllAnswered: return allAnswered(piece);
      case Happening::kHere: return here(rack, pieces_[piece].tensor);
    }
  }

  // Of the slowest host in the rack.
  double factor(uint32_t rack, uint64_t step) const {
    double most = 0;
    for (uint32_t i = rack * hostsPerRack_; i < (rack + 1) * hostsPerRack_; ++i)
      most = std::max(most, computeFactor(options_, i, plan_, step));
    return most;
  }

  void goForward(uint32_t id) {
    Rack& rack = racks_[id];
    if (rack.ends.size() > steps()) return;
    for (; rack.tensor < layers_.size(); ++rack.tensor) {
      rack.isWaiting = rack.missing[rack.tensor] > 0;
      if (rack.isWaiting) return;
      const double seconds = rack.factor * layers_[rack.tensor].forward;
      if (seconds > 0) return compute(id, seconds, Happening::kComputedForward);
    }
    goBackward(id);
  }

  void goBackward(uint32_t id) {
    Rack& rack = racks_[id];
    for (; rack.tensor > 0; handOver(id)) {
      const double seconds = rack.factor * layers_[rack.tensor - 1].backward;
      if (seconds > 0) return compute(id, seconds, Happening::kComputedBackward);
    }
    rack.ends.push_back(events_.now());
    rack.factor = factor(id, rack.ends.size() - 1);
    if (options_.otherSeconds <= 0) return goForward(id);
    compute(id, rack.factor * options_.otherSeconds, Happening::kDidOtherThings);
  }

  void compute(uint32_t rack, double seconds, Happening then) {
    happensAt(events_.now() + base::fromSeconds(seconds), then, rack);
  }

  void handOver(uint32_t id) {
    Rack& rack = racks_[id];
    const auto& pieces = piecesOfTensor_[--rack.tensor];
    rack.missing[rack.tensor] = static_cast<uint32_t>(pieces.size());
    for (const uint32_t piece : pieces)
      happensAt(work(rack, sendingTime(pieces_[piece])), Happening::kReadyToPush, id, piece);
  }

  void send(uint32_t id, uint32_t piece, bool isAnswer) {
    racks_[id].waiting.push({piece, isAnswer, order_++});
    handToNetwork(id);
  }

  // Pieces that the network has stay in their order, however urgent the next one is.
  void handToNetwork(uint32_t id) {
    Rack& rack = racks_[id];
    while (!rack.waiting.empty() && (rack.handedOver.empty() || rack.bytesHandedOver < credit_)) {
      rack.handedOver.push_back(rack.waiting.top());
      rack.bytesHandedOver += pieces_[rack.waiting.top().piece].bytes;
      rack.waiting.pop();
      if (rack.handedOver.size() == 1) begin(id);
    }
  }

  void begin(uint32_t id) {
    const Task& task = racks_[id].handedOver.front();
    happensAt(events_.now() + lineTime(pieces_[task.piece], task.isAnswer), Happening::kLineIsFree,
              id);
  }

  void sent(uint32_t id) {
    Rack& rack = racks_[id];
    const Task done = rack.handedOver.front();
    rack.handedOver.pop_front();
    Piece& piece = pieces_[done.piece];
    rack.bytesHandedOver -= piece.bytes;
    uint32_t& count = done.isAnswer ? piece.answered : piece.pushed;
    if (++count == racks_.size()) {
      count = 0;
      happensAt(events_.now() + options_.network.latency,
                done.isAnswer ? Happening::kAllAnswered : Happening::kAllPushed, 0, done.piece);
    }
    if (!rack.handedOver.empty()) begin(id);
    handToNetwork(id);
  }

  void allPushed(uint32_t id) {
    const Piece& piece = pieces_[id];
    const auto bytes = static_cast<uint64_t>(piece.bytes);
    const Duration time = receivingTime(piece) + options_.costs.summed(bytes) +
                          options_.costs.updated(bytes / hosts_) + sendingTime(piece);
    for (uint32_t rack = 0; rack < racks_.size(); ++rack)
      happensAt(work(racks_[rack], time), Happening::kReadyToAnswer, rack, id);
  }

  void allAnswered(uint32_t id) {
    trace_.add({static_cast<uint64_t>(events_.now().time_since_epoch().count()), id});
    for (uint32_t rack = 0; rack < racks_.size(); ++rack)
      happensAt(work(racks_[rack], receivingTime(pieces_[id])), Happening::kHere, rack, id);
  }

  void here(uint32_t id, uint32_t tensor) {
    Rack& rack = racks_[id];
    if (--rack.missing[tensor] == 0 && rack.isWaiting && rack.tensor == tensor) goForward(id);
  }

  // Keeps the loop of each of the rack's hosts busy; returns when it has done so.
  TimePoint work(Rack& rack, Duration time) {
    rack.busy += time;
    rack.loopFreeAt = std::max(rack.loopFreeAt, events_.now()) + time;
    return rack.loopFreeAt;
  }
  Duration sendingTime(const Piece& piece) const {
    return workTime(options_.costs.messageSent, options_.costs.byteSent, piece);
  }
  Duration receivingTime(const Piece& piece) const {
    return workTime(options_.costs.messageReceived, options_.costs.byteReceived, piece);
  }
  Duration workTime(double message, double byte, const Piece& piece) const {
    return Duration(static_cast<Duration::rep>((message * piece.messages + byte * piece.bytes) *
                                               (hosts_ - 1) / hosts_));
  }

  // The time of a host's line, or that of the uplink if it is slower.
  Duration lineTime(const Piece& piece, bool isAnswer) const {
    const double bytes = piece.bytes + piece.messages * wire::kHeaderBytes;
    const double host = bytes * (hosts_ - 1) / hosts_ * (isAnswer ? skew_ : 1);
    const double uplink =
        bytes * (hosts_ - hostsPerRack_) / hosts_ * options_.network.topology.oversubscription;
    const auto rate = static_cast<double>(timing::payloadRate(options_.network.rate).bitsPerSecond);
    return Duration(static_cast<Duration::rep>(std::max(host, uplink) * 8 * kNanoseconds / rate));
  }

  size_t steps() const {
    return static_cast<size_t>(options_.warmUp) + static_cast<size_t>(options_.iterations);
  }

  const SimulationOptions& options_;
  const plan::Plan& plan_;
  const std::span<const timing::Layer> layers_;
  const uint32_t hosts_;
  const uint32_t hostsPerRack_;
  const double skew_;
  const double credit_;        // bytes that a host's network may have, for all destinations
  std::vector<Piece> pieces_;  // the most urgent first
  std::vector<std::vector<uint32_t>> piecesOfTensor_;
  std::vector<Rack> racks_;
  EventQueue events_;
  TraceHash trace_;
  uint64_t order_ = 0;
};

}  // namespace

Result<SimulationResult> simulateRacks(const SimulationOptions& options, const plan::Plan& plan,
                                       uint64_t shrink, std::span<const timing::Layer> layers) {
  const uint32_t size = RackJob::rackSize(options.network);
  if (options.network.hosts % size != 0) {
    return Status(Code::kInvalidArgument,
                  fmt::format("--fidelity aggregated: {} hosts do not fill whole racks of {}",
                              options.network.hosts, size));
  }
  if (plan.spec().strategy != "sluice" && plan.spec().strategy != "p3") {
    return Status(
        Code::kInvalidArgument,
        fmt::format("--fidelity aggregated knows sluice and p3, not {}", plan.spec().strategy));
  }
  if (options.isExact || !options.faults.empty() || options.randomCuts > 0 ||
      options.network.loss > 0 || options.network.jitter > 0 ||
      options.network.model != NetworkModel::kSegments || !options.network.topology.isEven() ||
      !options.traceDirectory.empty() || plan.roles().workers.size() != options.network.hosts) {
    return Status(Code::kInvalidArgument,
                  "--fidelity aggregated takes equal hosts on a good network: leave out --exact, "
                  "--network, --servers, --trace, topology files, faults, loss and jitter");
  }
  RackJob job(options, plan, shrink, layers);
  SLUICE_RETURN_IF_ERROR(job.run());
  SimulationResult result;
  job.report(result);
  return result;
}

}  // namespace sluice::sim
