// The Python module sluice_test_device._device: the knobs of the device.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <stdexcept>
#include <string>

#include <tests/device/torch/device.h>

namespace sluice::pretend {

namespace {

constexpr std::array<const char*, kDirections> kDirectionNames{"to_host", "to_device", "on_device"};

Mode modeOf(const std::string& name) {
  if (name == "eager") return Mode::kEager;
  if (name == "random") return Mode::kRandom;
  if (name == "adversary") return Mode::kAdversary;
  throw std::invalid_argument("mode is eager, random or adversary, not " + name);
}

void setMode(const std::string& mode, uint64_t seed, double longestDelay, double patience) {
  Settings settings = machine().settings();
  settings.mode = modeOf(mode);
  settings.seed = seed;
  settings.longestDelay = base::fromSeconds(longestDelay);
  settings.patience = base::fromSeconds(patience);
  machine().set(settings);
}

void setCopies(double bytesPerSecond, double latency) {
  Settings settings = machine().settings();
  settings.bytesPerSecond = bytesPerSecond;
  settings.copyLatency = base::fromSeconds(latency);
  machine().set(settings);
}

void setUnpinnedCopiesWait(bool wait) {
  Settings settings = machine().settings();
  settings.unpinnedCopiesWait = wait;
  machine().set(settings);
}

pybind11::dict statistics() {
  const Statistics counts = machine().statistics();
  pybind11::dict result;
  for (size_t i = 0; i < kDirections; ++i) {
    result[pybind11::str(std::string("copies_") + kDirectionNames[i])] = counts.copies[i];
    result[pybind11::str(std::string("bytes_") + kDirectionNames[i])] = counts.bytes[i];
  }
  result["kernels"] = counts.kernels;
  result["events_recorded"] = counts.eventsRecorded;
  result["stream_waits"] = counts.streamWaits;
  result["host_waits"] = counts.hostWaits;
  result["changed_sources"] = counts.changedSources;
  result["pinned_bytes"] = counts.pinnedBytes;
  result["peak_pinned_bytes"] = counts.peakPinnedBytes;
  return result;
}

pybind11::list copyIntervals() {
  pybind11::list result;
  for (const CopyInterval& interval : machine().copyIntervals()) {
    result.append(pybind11::make_tuple(kDirectionNames[static_cast<size_t>(interval.direction)],
                                       base::seconds(interval.start.time_since_epoch()),
                                       base::seconds(interval.end.time_since_epoch()),
                                       interval.bytes));
  }
  return result;
}

bool isInBadFork() {
  Machine* const used = machineIfUsed();
  return used != nullptr && used->isInherited();
}

}  // namespace

PYBIND11_MODULE(_device, module) {
  module.def("set_mode", &setMode);
  module.def("set_copies", &setCopies);
  module.def("set_unpinned_copies_wait", &setUnpinnedCopiesWait);
  module.def("statistics", &statistics);
  module.def("reset_statistics", [] { machine().resetStatistics(); });
  module.def("copy_intervals", &copyIntervals);
  module.def("is_in_bad_fork", &isInBadFork);
  module.def("device_count", [] { return kDevices; });
  module.def("current_device", [] { return static_cast<int>(currentDevice()); });
  module.def("set_device",
             [](int device) { setCurrentDevice(static_cast<c10::DeviceIndex>(device)); });
}

}  // namespace sluice::pretend
