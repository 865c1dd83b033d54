// Measures this host's CPU: the time of a fixed amount of work, and of the codecs. The calling
// thread works; any thread.
#pragma once

#include <map>
#include <string>

namespace sluice::probe {

// A fixed amount of arithmetic, the same on every rank, several times over.
struct ComputeFacts {
  double cpuSeconds = 0;  // of the fastest time: how fast the CPU is
  // Of all times of one half, the one that was disturbed less.
  double totalCpuSeconds = 0;
  double totalSeconds = 0;  // on the wall's clock; much longer: others had the CPU meanwhile
};
ComputeFacts measureCompute();

// Returns, by codec, the CPU seconds that encoding and decoding 1 GB of f32 gradients takes.
std::map<std::string, double> measureCodecs();

}  // namespace sluice::probe
