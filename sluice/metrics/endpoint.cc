#include <sluice/metrics/endpoint.h>

#include <algorithm>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <prometheus/exposer.h>

#include <sluice/base/log.h>
#include <sluice/base/mutex.h>
#include <sluice/metrics/families.h>

namespace sluice::metrics {
namespace {

class Sources final : public prometheus::Collectable {
 public:
  void add(Source& source) {
    all_.with([&](auto& all) { all.push_back(&source); });
  }
  void remove(Source& source) {
    all_.with([&](auto& all) { std::erase(all, &source); });
  }

  // Sources are read under the lock, so that none goes meanwhile. They wait for their loop only, and no loop
  // waits for this lock.
  std::vector<prometheus::MetricFamily> Collect() const override {
    return all_.with([](const auto& all) {
      std::vector<Reading> readings;
      for (Source* source : all) {
        auto reading = source->read();
        if (reading.isOk()) {
          readings.push_back(*std::move(reading));
        } else {
          log("metrics").warn("a session is left out of this scrape: {}", reading.status().message());
        }
      }
      return familiesOf(readings);
    });
  }

 private:
  base::Guarded<std::vector<Source*>> all_;
};

// The web server's library begins and ends for the whole process, and has no lock of its own for that.
base::Mutex& libraryMutex() {
  static base::Mutex mutex;
  return mutex;
}

}  // namespace

class Endpoint::Server final {
 public:
  Server(const std::string& address, uint16_t port) : address_(address) {
    const base::Lock lock(libraryMutex());
    exposer_.emplace(std::vector<std::string>{"listening_ports", fmt::format("{}:{}", address, port),
                                              "num_threads", "1", "request_timeout_ms", "5000"});
    exposer_->RegisterCollectable(sources_);
  }
  ~Server() {
    const base::Lock lock(libraryMutex());
    exposer_.reset();
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  Sources& sources() { return *sources_; }
  std::string url() const {
    return fmt::format("http://{}:{}/metrics", address_, exposer_->GetListeningPorts().at(0));
  }

 private:
  const std::string address_;
  const std::shared_ptr<Sources> sources_ = std::make_shared<Sources>();
  std::optional<prometheus::Exposer> exposer_;  // goes first: it asks the sources
};

Result<std::unique_ptr<Endpoint>> Endpoint::open(const std::string& address, uint16_t port) {
  try {
    return std::unique_ptr<Endpoint>(new Endpoint(std::make_unique<Server>(address, port)));
  } catch (const std::exception&) {  // it does not say why
    return Status(
        Code::kUnavailable,
        fmt::format("metrics: cannot listen on {}:{}; is the port taken? Choose another with metrics-port",
                    address, port));
  }
}

Endpoint::Endpoint(std::unique_ptr<Server> server) : server_(std::move(server)) {}
Endpoint::~Endpoint() = default;

std::string Endpoint::url() const {
  return server_->url();
}
void Endpoint::add(Source& source) {
  server_->sources().add(source);
}
void Endpoint::remove(Source& source) {
  server_->sources().remove(source);
}

}  // namespace sluice::metrics
