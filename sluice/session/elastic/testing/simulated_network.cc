#include <sluice/session/elastic/testing/simulated_network.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include <sluice/base/check.h>
#include <sluice/session/elastic/testing/simulated_node.h>

namespace sluice::session {
namespace {

using namespace std::chrono_literals;

constexpr Duration kShortestWay = 50us;
constexpr Duration kLongestWay = 2ms;
// TCP tries again at growing intervals, so a path that is there again is noticed some time later.
constexpr Duration kLongestRetry = 400ms;

}  // namespace

SimulatedNetwork::SimulatedNetwork(SimulatedTime& time, uint32_t processes)
    : time_(time), processes_(processes), news_(processes) {
  for (uint32_t from = 0; from < processes; ++from) {
    for (uint32_t to = 0; to < processes; ++to) news_[from].push_back(makePipe(from, to));
  }
}

SimulatedNetwork::~SimulatedNetwork() = default;

uint32_t SimulatedNetwork::openPort(uint32_t process) {
  ports_.push_back({.process = process, .hasNode = false, .node = {}, .waiting = {}});
  return static_cast<uint32_t>(ports_.size() - 1);
}

std::unique_ptr<fabric::NodeFabric> SimulatedNetwork::join(std::vector<uint32_t> ports, Rank rank,
                                                           Epoch epoch, ProcessLoop& loop,
                                                           fabric::Receiver& receiver) {
  const uint32_t own = ports[index(rank)];
  auto node = std::make_shared<SimulatedNode>(*this, std::move(ports), rank, epoch, loop, receiver);
  Port& port = ports_[own];
  SLUICE_CHECK(!port.hasNode, own);
  port.hasNode = true;
  port.node = node;
  for (auto& toNode : std::exchange(port.waiting, {}))
    loop.post([node, toNode = std::move(toNode)] { toNode(*node); });
  return std::make_unique<fabric::NodeFabric>(std::move(node));
}

std::shared_ptr<SimulatedNetwork::Pipe> SimulatedNetwork::makePipe(uint32_t from, uint32_t to) {
  pipes_.push_back(std::make_shared<Pipe>());
  pipes_.back()->from = from;
  pipes_.back()->to = to;
  return pipes_.back();
}

void SimulatedNetwork::carry(const std::shared_ptr<Pipe>& pipe, Task arrive) {
  pipe->flying.push_back(std::move(arrive));
  pipe->last = std::max(pipe->last, time_.now() + time_.between(kShortestWay, kLongestWay));
  time_.at(pipe->last, [this, pipe] { arriveOne(pipe); });
}

void SimulatedNetwork::arriveOne(const std::shared_ptr<Pipe>& pipe) {
  if (isCut(*pipe)) pipe->isStuck = true;
  if (pipe->isStuck || pipe->flying.empty()) return;
  const Task arrive = std::move(pipe->flying.front());
  pipe->flying.pop_front();
  arrive();
}

void SimulatedNetwork::resume(const std::function<bool(const Pipe&)>& isWanted) {
  for (const auto& pipe : pipes_) {
    if (!isWanted(*pipe) || !pipe->isStuck) continue;
    const TimePoint when = time_.now() + time_.upTo(kLongestRetry);
    pipe->last = std::max(pipe->last, when);
    time_.at(when, [this, pipe] {
      if (isCut(*pipe)) return;  // again
      pipe->isStuck = false;
      for (size_t left = pipe->flying.size(); left > 0; --left) arriveOne(pipe);
    });
  }
}

void SimulatedNetwork::heal(uint32_t from, uint32_t to) {
  if (cuts_.erase({from, to}) == 0) return;
  resume([&](const Pipe& pipe) { return pipe.from == from && pipe.to == to; });
}

void SimulatedNetwork::healAll() {
  cuts_.clear();
  resume([](const Pipe&) { return true; });
}

void SimulatedNetwork::deliver(uint32_t port, ToNode toNode, const Task& refused) {
  Port& to = ports_[port];
  const Process& process = processes_[to.process];
  if (process.isHostLost) return;  // nobody answers
  if (process.hasEnded) return refused();
  if (!to.hasNode) return to.waiting.push_back(std::move(toNode));
  const auto node = to.node.lock();
  if (node == nullptr) return refused();
  node->loop().post([node, toNode = std::move(toNode)] { toNode(*node); });
}

void SimulatedNetwork::tell(uint32_t from, uint32_t toPort, ToNode toNode) {
  carry(news_[from][ports_[toPort].process], [this, toPort, toNode = std::move(toNode)] {
    deliver(toPort, toNode, [] { /* it is gone, too */ });
  });
}

void SimulatedNetwork::lose(uint32_t process, bool withItsHost) {
  processes_[process] = {.hasEnded = true, .isHostLost = withItsHost};
  if (withItsHost) return;
  for (const Port& port : ports_) {
    if (port.process != process) continue;
    if (const auto node = port.node.lock()) node->tellAllOfTheEnd();
  }
}

bool SimulatedNetwork::breakConnection(uint32_t process) {
  // The newest fabric is a session's; an older one may be the members' own.
  std::vector<std::shared_ptr<SimulatedNode>> nodes;
  for (const Port& port : ports_) {
    if (port.process != process) continue;
    if (auto node = port.node.lock(); node != nullptr && !node->hasEnded())
      nodes.push_back(std::move(node));
  }
  if (nodes.empty()) return false;
  const size_t which = time_.below(2) == 0 ? nodes.size() - 1 : time_.below(nodes.size());
  return nodes[which]->breakConnection({Code::kPeerLost, "connection reset by peer"});
}

}  // namespace sluice::session
