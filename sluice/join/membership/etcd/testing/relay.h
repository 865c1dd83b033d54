// A relay to a TCP port on loopback that can swallow answers and cut connections, for tests. It has a
// thread of its own; any thread may call.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include <sluice/base/net/address.h>
#include <sluice/base/net/fd.h>

namespace sluice::membership {

class EtcdRelay final {
 public:
  explicit EtcdRelay(uint16_t target)
      : target_(target), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const net::Address any = net::Address::loopback(0);
    (void)::bind(listener_.get(), any.raw(), any.rawSize());
    (void)::listen(listener_.get(), 64);
    thread_ = std::thread([this] { run(); });
  }
  ~EtcdRelay() {
    isEnding_ = true;
    thread_.join();
  }
  EtcdRelay(const EtcdRelay&) = delete;
  EtcdRelay& operator=(const EtcdRelay&) = delete;

  uint16_t port() const { return net::Address::localOf(listener_.get()).port(); }

  // Instead of handing on the next `count` answers, closes their connections.
  void swallow(int count) { toSwallow_ = count; }
  int leftToSwallow() const { return toSwallow_; }
  // Ends all connections, and every new one at once.
  void setCut(bool isCut) { isCut_ = isCut; }

 private:
  struct Pair {
    net::Fd client;
    net::Fd server;
  };

  void run() {
    std::vector<Pair> pairs;
    while (!isEnding_) {
      if (isCut_) pairs.clear();
      std::vector<pollfd> ready{{listener_.get(), POLLIN, 0}};
      for (const Pair& pair : pairs) {
        ready.push_back({pair.client.get(), POLLIN, 0});
        ready.push_back({pair.server.get(), POLLIN, 0});
      }
      ::poll(ready.data(), ready.size(), 5);
      const size_t known = pairs.size();
      if (ready[0].revents != 0) accept(pairs);
      std::vector<Pair> kept;
      for (size_t i = 0; i < pairs.size(); ++i) {
        bool isOpen = true;
        if (i < known && ready[1 + 2 * i].revents != 0)
          isOpen = pass(pairs[i].client, pairs[i].server, /*isAnswer=*/false);
        if (i < known && isOpen && ready[2 + 2 * i].revents != 0)
          isOpen = pass(pairs[i].server, pairs[i].client, /*isAnswer=*/true);
        if (isOpen) kept.push_back(std::move(pairs[i]));
      }
      pairs = std::move(kept);
    }
  }
  void accept(std::vector<Pair>& pairs) {
    net::Fd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    net::Fd server(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const net::Address to = net::Address::loopback(target_);
    if (isCut_ || ::connect(server.get(), to.raw(), to.rawSize()) != 0) return;
    pairs.push_back({std::move(client), std::move(server)});
  }
  bool pass(const net::Fd& from, const net::Fd& to, bool isAnswer) {
    std::array<char, 65536> bytes{};
    const ssize_t got = ::recv(from.get(), bytes.data(), bytes.size(), 0);
    if (got <= 0) return false;
    if (isAnswer && toSwallow_ > 0) {
      --toSwallow_;
      return false;
    }
    return ::send(to.get(), bytes.data(), static_cast<size_t>(got), MSG_NOSIGNAL) == got;
  }

  const uint16_t target_;
  const net::Fd listener_;
  std::atomic<bool> isEnding_{false};
  std::atomic<bool> isCut_{false};
  std::atomic<int> toSwallow_{0};
  std::thread thread_;
};

}  // namespace sluice::membership
