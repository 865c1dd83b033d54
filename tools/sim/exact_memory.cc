#include <tools/sim/exact_memory.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include <fmt/format.h>

#include <sluice/base/units.h>

namespace sluice::sim {
namespace {

constexpr uint64_t kModelsPerHost = 5;
constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();

// "MemAvailable:   19182736 kB"
uint64_t availableToTheMachine() {
  std::ifstream file("/proc/meminfo");
  for (std::string word; file >> word;) {
    uint64_t kibibytes = 0;
    if (word == "MemAvailable:" && file >> kibibytes) return kibibytes << 10;
  }
  return kUnknown;
}

// A container may take less than the machine has. The file says "max" where there is no limit.
uint64_t limitOfTheContainer() {
  uint64_t bytes = 0;
  return std::ifstream("/sys/fs/cgroup/memory.max") >> bytes ? bytes : kUnknown;
}

}  // namespace

uint64_t exactBytes(uint64_t modelBytes, uint32_t hosts) {
  return kModelsPerHost * modelBytes * hosts;
}

uint64_t availableBytes() {
  return std::min(availableToTheMachine(), limitOfTheContainer());
}

Status checkMemory(uint64_t neededBytes, uint64_t available, uint32_t hosts) {
  if (neededBytes <= available) return base::ok();
  return {Code::kUnavailable,
          fmt::format("--exact: the tensors of {} hosts need {}, and this machine has {}: give "
                      "fewer --hosts or a smaller --profile, or leave out --exact",
                      hosts, base::formatBytes(neededBytes), base::formatBytes(available))};
}

}  // namespace sluice::sim
