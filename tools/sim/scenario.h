// Several simulations and their figures: every algorithm with every number of hosts and every seed.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <tools/sim/simulation.h>

namespace sluice::sim {

struct Scenario {
  // Its algorithm, hosts, seed and compute time are filled in. Traces get a directory per run.
  SimulationOptions job{};
  std::vector<std::string> algorithms{};
  std::vector<uint32_t> hosts{};
  std::vector<uint64_t> seeds{};
  double ratio = 1;                                    // wire time / compute time
  std::function<void(std::string_view what)> onRun{};  // before each simulation
};

// The values of one figure over the seeds.
struct FigureRange {
  double median = 0;
  double least = 0;
  double greatest = 0;
};

// One algorithm with one number of hosts, over all seeds.
struct ScenarioRow {
  std::string profile{};
  std::string algorithm{};
  NetworkOptions network{};
  HostCosts costs{};
  int64_t shrink = 1;
  bool isExact = false;
  Fidelity fidelity = Fidelity::kHosts;
  int iterations = 0;
  double ratio = 0;
  double computeSeconds = 0;
  double boundSeconds = 0;
  std::optional<double> speedupOverKvstore{};  // if that was simulated too
  FigureRange iteration{};                     // seconds
  std::optional<FigureRange> overBound{};      // if the bound holds for the algorithm
  FigureRange messages{};
  FigureRange bytes{};
  FigureRange droppedShare{};
  FigureRange busiestLoop{};
  FigureRange inversionMs{};
  FigureRange cpuSeconds{};
  std::vector<double> runs{};           // seconds of an iteration, by seed
  std::vector<uint64_t> traceHashes{};  // by seed
};

Result<std::vector<ScenarioRow>> run(const Scenario& scenario);

// Says in words which parts of a simulation are real and which are modelled.
std::string describeFidelity(const SimulationOptions& job);

nlohmann::ordered_json toJson(const ScenarioRow& row);

}  // namespace sluice::sim
