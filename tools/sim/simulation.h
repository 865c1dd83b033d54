// A job in simulated time, from its plan to its figures: N hosts with the real strategies, one
// simulated network, one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <sluice/base/config.h>
#include <sluice/base/status.h>
#include <sluice/data/plan/plan.h>
#include <sluice/data/timing/profile.h>
#include <tools/bench/unevenness.h>
#include <tools/sim/faults.h>
#include <tools/sim/host_costs.h>
#include <tools/sim/segment_network.h>

namespace sluice::sim {

enum class Fidelity : uint8_t {
  kHosts,  // every host with the real code, every message
  kRacks   // each rack as one host, by rack_simulation.h
};

struct SimulationOptions {
  Fidelity fidelity = Fidelity::kHosts;
  std::string profile{};      // a built-in one, or a file
  std::string algorithm{};    // as a user writes it: "ssp:3"
  double computeSeconds = 0;  // of one forward and backward pass
  double otherSeconds = 0;    // of one step, outside the passes
  int warmUp = 2;
  int iterations = 4;
  std::string update = "sgd:lr=0.01";
  // Every host has gradients of its own, and all end with the parameters of one process. Otherwise
  // the hosts share one memory, whose contents mean nothing.
  bool isExact = false;
  bench::Unevenness unevenness{};
  std::map<uint32_t, double> slowerHosts{};  // these compute so many times longer
  double computeJitter = 0.01;               // a step takes up to this share longer, by chance
  std::vector<PlannedFault> faults{};
  uint32_t randomCuts = 0;   // of links, drawn from the seed
  NetworkOptions network{};  // the number of hosts and the seed, too
  HostCosts costs{};
  // The path of slices through these hosts is written into the directory, in simulated time. An
  // empty directory means no trace, an empty list all hosts.
  std::vector<uint32_t> tracedHosts{};
  std::string traceDirectory{};
  // Credit, slices and the like. --shrink in it: every tensor, slice, credit and threshold is
  // divided by it, and the network and the costs count every byte as often.
  base::Config config{};
  std::function<bool()> isInterrupted = [] { return false; };
};

struct SimulationResult {
  double iterationSeconds = 0;  // as replays measure it: bench/fair_figures.h
  double boundSeconds = 0;      // no flat exchange on these lines can be faster
  bool sendsEverything = true;  // so the bound holds for the algorithm
  double messages = 0;          // per iteration, of all hosts
  double bytes = 0;             // the same, with headers
  uint64_t segmentsDropped = 0;
  uint64_t segments = 0;
  double inversionMs = 0;  // of the rank with the largest p99
  double busiestLoop = 0;  // the share of time that the busiest host's loop works
  uint64_t traceHash = 0;
  double cpuSeconds = 0;  // that the simulation itself took, per iteration
};

// Refuses options that cannot be, and an exact job that the machine has no memory for. If a host is
// lost that the others cannot do without, the reason of the first of them is returned. Ends with
// kDataLoss if an exact job has not ended with the parameters of one process.
Result<SimulationResult> simulate(const SimulationOptions& options);

// Returns how many times longer than in the profile a worker computes in this step: by unevenness
// and by chance.
double computeFactor(const SimulationOptions& options, uint32_t worker, const plan::Plan& plan,
                     uint64_t step);

}  // namespace sluice::sim
