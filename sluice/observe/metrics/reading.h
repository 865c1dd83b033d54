// The values of a session's meters at one moment. A plain value; families.cc turns it into
// Prometheus' metrics.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <sluice/base/clock.h>
#include <sluice/base/histogram.h>
#include <sluice/base/types/ids.h>
#include <sluice/observer.h>
#include <sluice/transport/fabric/fabric.h>

namespace sluice::metrics {

struct PeerReading {
  bool isUp = true;    // it has neither been lost nor left
  Duration silence{};  // since its last byte
  Duration busy{};     // for how long its loop has not turned, if it says that it is busy
};

struct Reading {
  std::string session{};
  Rank rank{};
  uint64_t steps = 0;  // begun
  fabric::Counters fabric{};
  std::array<uint64_t, kPath.size()> slicesByStage{};
  uint64_t creditUsed = 0;    // bytes with the network
  uint64_t bytesWaiting = 0;  // bytes that wait for credit or for their turn
  base::Histogram inversion{};
  std::vector<std::string> tensors{};   // names, by TensorId
  std::vector<Duration> waited{};       // by TensorId
  std::map<Rank, PeerReading> peers{};  // those that were ever heard
};

}  // namespace sluice::metrics
