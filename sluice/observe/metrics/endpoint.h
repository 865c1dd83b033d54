// The address at which Prometheus reads the metrics of all sessions of this process. A process has
// at most one. Thread safety: any thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <sluice/base/clock.h>
#include <sluice/base/histogram.h>
#include <sluice/base/ids.h>
#include <sluice/base/status.h>
#include <sluice/observer.h>
#include <sluice/transport/fabric/fabric.h>

namespace sluice::metrics {

struct PeerReading {
  bool isUp = true;    // it has neither been lost nor left
  Duration silence{};  // since its last byte
  Duration busy{};     // for how long its loop has not turned, if it says that it is busy
};

// The values of a session's meters at one moment. A plain value; page.cc turns it into
// Prometheus' metrics.
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

class PageServer;

// A part of the process that has meters. read() runs on the endpoint's thread for every scrape; a
// source that returns an error is left out of that scrape.
class MetricsSource {
 public:
  virtual ~MetricsSource() = default;
  virtual Result<Reading> read() = 0;
};

class MetricsServer final {
 public:
  // Port 0 stands for any free port. The endpoint costs a thread, which sleeps until somebody asks.
  static Result<std::unique_ptr<MetricsServer>> open(const std::string& address, uint16_t port);
  ~MetricsServer();

  std::string url() const;  // "http://127.0.0.1:9400/metrics"

  // REQUIRES: the source is removed before it is destroyed.
  void add(MetricsSource& source);
  void remove(MetricsSource& source);  // it is not being read any more when this returns

 private:
  class Sources;
  MetricsServer(std::shared_ptr<Sources> sources, std::unique_ptr<PageServer> server);

  const std::shared_ptr<Sources> sources_;
  const std::unique_ptr<PageServer> server_;
};

}  // namespace sluice::metrics
