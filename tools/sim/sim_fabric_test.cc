#include <tools/sim/sim_fabric.h>

#include <deque>

#include <sluice/transport/fabric/testing/contract_suite.h>
#include <tools/sim/segment_network.h>

namespace sluice::fabric::contract {
namespace {

// Ranks on hosts of a simulated network. Time passes from event to event.
class SimulatedWorld final : public World {
 public:
  explicit SimulatedWorld(size_t ranks) {
    for (size_t i = 0; i < ranks; ++i) loops_.emplace_back(events);
  }

  bool hasThreads() const override { return false; }
  sim::HostLoop& loop(size_t rank) override { return loops_[rank]; }
  TimePoint now() const override { return events.now(); }
  bool runUntil(const std::function<bool()>& holds, Duration patience) override {
    const TimePoint end = now() + patience;
    while (!holds()) {
      if (!events.runNext(end)) return holds();
    }
    return true;
  }
  void destroy(std::unique_ptr<Fabric>& fabric) override {
    fabric->loop().post([&fabric] { fabric.reset(); });
    while (fabric != nullptr) ASSERT_TRUE(events.runNext());
  }

  sim::EventQueue events;

 private:
  std::deque<sim::HostLoop> loops_;
};

class SimulatedEngine final : public Engine {
 public:
  SimulatedEngine(size_t worldSize, sim::NetworkOptions network, const sim::HostCosts& costs)
      : world_(worldSize),
        network_(world_.events, at(network, worldSize)),
        hub_(world_.events, network_,
             {.worldSize = static_cast<uint32_t>(worldSize), .costs = costs, .closeDeadline = 1s}) {
  }
  World& world() override { return world_; }
  std::unique_ptr<Fabric> make(Rank rank, Receiver& receiver) override {
    return hub_.join(rank, world_.loop(index(rank)), receiver);
  }

 private:
  static const sim::NetworkOptions& at(sim::NetworkOptions& options, size_t hosts) {
    options.hosts = static_cast<uint32_t>(hosts);
    return options;
  }

  SimulatedWorld world_;
  sim::SegmentNetwork network_;
  sim::SimHub hub_;
};

EngineCase simulated(std::string name, const sim::NetworkOptions& network,
                     const sim::HostCosts& costs = {}) {
  return {std::move(name), [network, costs](size_t worldSize) -> std::unique_ptr<Engine> {
            return std::make_unique<SimulatedEngine>(worldSize, network, costs);
          }};
}

INSTANTIATE_TEST_SUITE_P(Simulated, FabricContract,
                         testing::Values(simulated("star", {}),
                                         simulated("racks", {.topology = {.hostsPerRack = 2,
                                                                          .oversubscription = 4},
                                                             .jitter = 0.5}),
                                         simulated("lossy", {.loss = 0.02, .queueBytes = 64 << 10}),
                                         simulated("busy_hosts", {},
                                                   {.messageSent = 5'000,
                                                    .messageReceived = 7'000,
                                                    .byteSent = 0.2,
                                                    .byteReceived = 0.3})),
                         caseName);

}  // namespace
}  // namespace sluice::fabric::contract
