// Measures a fabric in a lab, sample by sample, in turn with other programs on the same links, and
// compares the medians.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <sluice/base/config.h>
#include <tools/bench/fabric/task.h>
#include <tools/lab/lab.h>

namespace sluice::bench {

struct FabricBenchOptions {
  FabricCase which = FabricCase::kPair;
  std::string fabric{};
  std::string encrypt{};
  Rate rate{};  // of the lab; 0: not shaped
  int hosts = 2;
  int samples = 5;
  double seconds = 2;     // of each sample
  int rounds = 20;        // of overtaking, in each sample
  base::Config config{};  // of the ranks
  // Starts one rank; the rank's task follows as the last word.
  std::vector<std::string> rankCommand{};
  std::function<void(std::string_view what)> onSample{};
};

// The values of one figure that was measured several times.
struct Samples {
  std::string name{};  // "sluice_gbit": as it is called in the JSON
  std::vector<double> values{};
};

struct FabricFigures {
  std::vector<Samples> samples{};
  std::vector<std::pair<std::string, double>> derived{};  // ratios, percentiles; 0: not measured
  std::string beside{};                                   // for people only
  FabricBenchOptions options{};
};

Result<FabricFigures> benchFabric(const lab::Lab& lab, const FabricBenchOptions& options);

// Returns {"case": "pair", "fabric", "encrypt", "rate", ...}: medians, and figures derived from
// them.
nlohmann::ordered_json toJson(const FabricFigures& figures);
// Returns a text for people: medians with their least and greatest value.
std::string toText(const FabricFigures& figures);

}  // namespace sluice::bench
