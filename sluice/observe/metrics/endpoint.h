// The address at which Prometheus reads the metrics of all sessions of this process. A process has
// at most one. Thread safety: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <sluice/base/status.h>
#include <sluice/observe/metrics/reading.h>

namespace sluice::metrics {

// A part of the process that has meters. read() runs on the endpoint's thread for every scrape; a
// source that returns an error is left out of that scrape.
class Source {
 public:
  virtual ~Source() = default;
  virtual Result<Reading> read() = 0;
};

class Endpoint final {
 public:
  // Port 0 stands for any free port. The endpoint costs five threads, which sleep until somebody
  // asks.
  static Result<std::unique_ptr<Endpoint>> open(const std::string& address, uint16_t port);
  ~Endpoint();

  std::string url() const;  // "http://127.0.0.1:9400/metrics"

  // REQUIRES: the source is removed before it is destroyed.
  void add(Source& source);
  void remove(Source& source);  // it is not being read any more when this returns

 private:
  class Server;
  explicit Endpoint(std::unique_ptr<Server> server);

  const std::unique_ptr<Server> server_;
};

}  // namespace sluice::metrics
