#include <sluice/observe/metrics/endpoint.h>

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <prometheus/exposer.h>

#include <sluice/base/fork.h>
#include <sluice/base/log.h>
#include <sluice/base/mutex.h>
#include <sluice/base/thread.h>
#include <sluice/observe/metrics/families.h>

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

  // Sources are read under the lock, so that no source is removed meanwhile. Sources wait for their
  // loop only, and no loop waits for this lock.
  std::vector<prometheus::MetricFamily> Collect() const override {
    return all_.with([](const auto& all) {
      std::vector<Reading> readings;
      for (Source* source : all) {
        auto reading = source->read();
        if (reading.isOk()) {
          readings.push_back(*std::move(reading));
        } else {
          log("metrics").warn("a session is left out of this scrape: {}",
                              reading.status().message());
        }
      }
      return familiesOf(readings);
    });
  }

 private:
  base::Guarded<std::vector<Source*>> all_;
};

// Finds the sockets of this process that listen on the port. The web server's library does not tell
// them.
std::vector<int> listenersOn(int port) {
  std::vector<int> found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored)) {
    const std::string name = entry.path().filename();
    int fd = -1;
    std::from_chars(name.data(), name.data() + name.size(), fd);
    int isListening = 0;
    socklen_t size = sizeof isListening;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &isListening, &size) != 0 || isListening == 0)
      continue;
    sockaddr_in6 address{};  // the port lies at the same place for both families
    socklen_t length = sizeof address;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) continue;
    if ((address.sin6_family == AF_INET || address.sin6_family == AF_INET6) &&
        ntohs(address.sin6_port) == port)
      found.push_back(fd);
  }
  return found;
}

// The web server's library starts and stops for the whole process, and has no lock of its own for
// that.
base::Mutex& libraryMutex() {
  static base::Mutex mutex;
  return mutex;
}

}  // namespace

class Endpoint::Server final {
 public:
  Server(const std::string& address, uint16_t port) : address_(address) {
    const base::Lock lock(libraryMutex());
    const base::SignalsBlocked inItsThreads;
    exposer_.emplace(std::vector<std::string>{"listening_ports",
                                              fmt::format("{}:{}", address, port),
                                              // A client that connects and stays silent holds one
                                              // thread for a second. The others go on.
                                              "num_threads", "4", "request_timeout_ms", "1000"});
    exposer_->RegisterCollectable(sources_);
    listeners_ = listenersOn(exposer_->GetListeningPorts().at(0));
    for (const int fd : listeners_) base::closeInForkedChildren(fd);
  }
  ~Server() {
    const base::Lock lock(libraryMutex());
    // The numbers leave the list before the sockets close. Right afterwards they may belong to
    // files of somebody else.
    for (const int fd : listeners_) base::keepInForkedChildren(fd);
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
  std::vector<int> listeners_;  // the exposer's; a forked child must not keep the port
  std::optional<prometheus::Exposer> exposer_;  // goes first: it asks the sources
};

Result<std::unique_ptr<Endpoint>> Endpoint::open(const std::string& address, uint16_t port) {
  try {
    return std::unique_ptr<Endpoint>(new Endpoint(std::make_unique<Server>(address, port)));
  } catch (const std::exception&) {  // the exception does not say why
    return Status(Code::kUnavailable, fmt::format("metrics: cannot listen on {}:{}; the port may "
                                                  "be taken, choose another with metrics-port",
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
