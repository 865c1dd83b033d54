// Shared by the `sluice bench` subcommands that replay: their flags, and the run of their cases.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <tools/bench/replay.h>

namespace sluice::cli {

class Program;

struct BenchFlags {
  std::string profile = "resnet50";
  std::string algorithms;
  uint32_t workers = 4;
  double ratio = 1;
  int runs = 3;
  int warmUp = 2;
  int iterations = 5;
  std::string update = "sgd:lr=0.01";
  std::string rate;
  std::string hostRates;
  std::string json;
  bool inLab = false;
  bool watchNetwork = false;
  bool compareWithReference = false;
  std::string straggler;
  std::string jitter;
};

// Adds the flags that all of them have. The values are filled in when the command line is read.
std::shared_ptr<BenchFlags> addBenchFlags(Program& program, CLI::App* command,
                                          const std::string& algorithms);

// One point of a series.
struct BenchCase {
  uint32_t workers = 0;
  double ratio = 1;
  int64_t sliceElements = 0;
};

// Runs all cases in turn, in as few labs as they need, shows how far it is, and prints and writes
// the result.
Result<int> runBench(const BenchFlags& flags, const base::Config& config,
                     const std::vector<BenchCase>& cases);

// Parses a list such as "2,4,8" or "0.5,1".
Result<std::vector<double>> parseNumbers(std::string_view text);

}  // namespace sluice::cli
