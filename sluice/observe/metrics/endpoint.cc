#include <sluice/observe/metrics/endpoint.h>

#include <vector>

#include <fmt/format.h>

#include <sluice/base/log.h>
#include <sluice/base/mutex.h>
#include <sluice/observe/metrics/page.h>
#include <sluice/observe/metrics/page_server.h>

namespace sluice::metrics {

class MetricsServer::Sources final {
 public:
  void add(MetricsSource& source) {
    all_.with([&](auto& all) { all.push_back(&source); });
  }
  void remove(MetricsSource& source) {
    all_.with([&](auto& all) { std::erase(all, &source); });
  }

  // Sources are read under the lock, so that no source is removed meanwhile. Sources wait for their
  // loop only, and no loop waits for this lock.
  std::string page() const {
    return all_.with([](const auto& all) {
      std::vector<Reading> readings;
      for (MetricsSource* source : all) {
        auto reading = source->read();
        if (reading.isOk()) {
          readings.push_back(*std::move(reading));
        } else {
          log("metrics").warn("a session is left out of this scrape: {}",
                              reading.status().message());
        }
      }
      return pageOf(readings);
    });
  }

 private:
  base::Guarded<std::vector<MetricsSource*>> all_;
};

Result<std::unique_ptr<MetricsServer>> MetricsServer::open(const std::string& address,
                                                           uint16_t port) {
  auto sources = std::make_shared<Sources>();
  auto server = PageServer::open(address, port, "/metrics", [sources] { return sources->page(); });
  if (!server.isOk()) {
    return Status(server.status().code(),
                  fmt::format("metrics: {}; choose another place with metrics-port and "
                              "metrics-address",
                              server.status().message()));
  }
  return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(sources), *std::move(server)));
}

MetricsServer::MetricsServer(std::shared_ptr<Sources> sources, std::unique_ptr<PageServer> server)
    : sources_(std::move(sources)), server_(std::move(server)) {}
MetricsServer::~MetricsServer() = default;

std::string MetricsServer::url() const {
  return server_->url();
}
void MetricsServer::add(MetricsSource& source) {
  sources_->add(source);
}
void MetricsServer::remove(MetricsSource& source) {
  sources_->remove(source);
}

}  // namespace sluice::metrics
