// The network of a simulated job, and the fabric on it. Processes open ports; a fabric connects one
// port to those of the other ranks, and keeps the contract of fabric.h. A path between two processes
// can be cut in one direction or both: what is on its way waits, as with TCP, and goes on some time
// after the path is there again. A process can end with its connections closed by its kernel, or
// with its host, so that nobody hears of it. One thread; tests only.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include <sluice/session/elastic/testing/process_loop.h>
#include <sluice/transport/fabric/node_fabric.h>

namespace sluice::session {

class SimulatedNode;

class SimulatedNetwork final {
 public:
  SimulatedNetwork(SimulatedTime& time, uint32_t processes);
  ~SimulatedNetwork();
  SimulatedNetwork(const SimulatedNetwork&) = delete;
  SimulatedNetwork& operator=(const SimulatedNetwork&) = delete;

  // Opens a port of a process. Messages for it wait until a fabric is made on it.
  uint32_t openPort(uint32_t process);

  // Makes a rank's fabric. `ports` has the ports of all ranks, by rank.
  std::unique_ptr<fabric::NodeFabric> join(std::vector<uint32_t> ports, Rank rank, Epoch epoch,
                                           ProcessLoop& loop, fabric::Receiver& receiver);

  void cut(uint32_t from, uint32_t to) { cuts_.emplace(from, to); }
  void heal(uint32_t from, uint32_t to);
  void healAll();

  // The process has ended. Its kernel closes its connections, unless its host is gone, too.
  void lose(uint32_t process, bool withItsHost);

  // Breaks one connection of a process, whichever, as a firewall may. False if it has none.
  bool breakConnection(uint32_t process);

  uint64_t messages() const { return messages_; }  // that have arrived

 private:
  friend class SimulatedNode;
  using ToNode = std::function<void(SimulatedNode&)>;

  struct Port {
    uint32_t process = 0;
    bool hasNode = false;
    std::weak_ptr<SimulatedNode> node;
    std::vector<ToNode> waiting;  // until there is a node
  };
  // The way of a lane, or of news: in order.
  struct Pipe {
    uint32_t from = 0;
    uint32_t to = 0;
    std::deque<Task> flying;
    TimePoint last{};
    bool isStuck = false;
  };
  struct Process {
    bool hasEnded = false;
    bool isHostLost = false;
  };

  std::shared_ptr<Pipe> makePipe(uint32_t from, uint32_t to);
  void carry(const std::shared_ptr<Pipe>& pipe, Task arrive);
  void arriveOne(const std::shared_ptr<Pipe>& pipe);
  // Hands something to the node of a port, on its loop. `refused` runs if nobody listens there.
  void deliver(uint32_t port, ToNode toNode, const Task& refused);
  // Sends news of a connection from one process to the node of a port.
  void tell(uint32_t from, uint32_t toPort, ToNode toNode);
  bool isCut(const Pipe& pipe) const { return cuts_.contains({pipe.from, pipe.to}); }
  void resume(const std::function<bool(const Pipe&)>& isWanted);

  SimulatedTime& time_;
  std::vector<Process> processes_;
  std::deque<Port> ports_;
  std::vector<std::shared_ptr<Pipe>> pipes_;
  std::vector<std::vector<std::shared_ptr<Pipe>>> news_;  // by process and process
  std::set<std::pair<uint32_t, uint32_t>> cuts_;
  uint64_t messages_ = 0;
};

}  // namespace sluice::session
