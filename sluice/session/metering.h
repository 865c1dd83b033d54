// The metrics of a session, for the endpoint of its job. The endpoint's thread reads them.
#pragma once

#include <string>

#include <sluice/observe/metrics/counts.h>
#include <sluice/observe/metrics/endpoint.h>
#include <sluice/session/trainer.h>
#include <sluice/transport/fabric/watch/watched_fabric.h>

namespace sluice::session {

class Metering final : public metrics::MetricsSource {
 public:
  Metering(metrics::MetricsServer& endpoint, std::string session, size_t tensors)
      : endpoint_(endpoint), session_(std::move(session)), counts_(tensors) {}

  StageObserver& observer() { return counts_; }

  // Lets the endpoint read from now on. REQUIRES: end() comes before the trainer and the fabric are
  // destroyed.
  void begin(Trainer& trainer, const fabric::PeerAwareFabric& fabric);
  void end();

  Result<metrics::Reading> read() override;

 private:
  metrics::MetricsServer& endpoint_;
  const std::string session_;
  metrics::Counts counts_;
  Trainer* trainer_ = nullptr;                       // between begin() and end()
  const fabric::PeerAwareFabric* fabric_ = nullptr;  // between begin() and end()
};

}  // namespace sluice::session
