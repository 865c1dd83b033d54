// A server of HTTP in etcd's place that answers every request with the same bytes, for tests. It has
// threads of its own; any thread may call.
#pragma once

#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sluice/base/net/address.h>
#include <sluice/base/net/fd.h>

namespace sluice::membership {

// `piece` is sent `times` times, between `first` and `last`, as one body without a length.
struct HostileAnswer {
  std::string first = {};
  std::string piece;
  size_t times = 1;
  std::string last = {};
};

class HostileServer final {
 public:
  explicit HostileServer(HostileAnswer answer)
      : answer_(std::move(answer)), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const net::Address any = net::Address::loopback(0);
    (void)::bind(listener_.get(), any.raw(), any.rawSize());
    (void)::listen(listener_.get(), 64);
    acceptor_ = std::thread([this] { accept(); });
  }
  ~HostileServer() {
    isEnding_ = true;
    ::shutdown(listener_.get(), SHUT_RDWR);
    acceptor_.join();
    for (std::thread& thread : threads_) thread.join();
  }
  HostileServer(const HostileServer&) = delete;
  HostileServer& operator=(const HostileServer&) = delete;

  uint16_t port() const { return net::Address::localOf(listener_.get()).port(); }
  // How many requests were answered, perhaps in part.
  int answers() const { return answers_; }

 private:
  void accept() {
    while (!isEnding_) {
      net::Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!socket.valid()) continue;
      threads_.emplace_back([this, socket = std::move(socket)] { serve(socket); });
    }
  }
  void serve(const net::Fd& socket) {
    const timeval patience{.tv_sec = 0, .tv_usec = 100'000};
    ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    std::array<char, 65536> bytes{};
    if (::recv(socket.get(), bytes.data(), bytes.size(), 0) <= 0) return;
    ++answers_;
    if (!send(socket, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + answer_.first)) return;
    for (size_t i = 0; i < answer_.times; ++i) {
      if (!send(socket, answer_.piece)) return;
    }
    (void)send(socket, answer_.last);
  }
  bool send(const net::Fd& socket, std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno != EAGAIN) return false;
      if (isEnding_) return false;
      if (sent > 0) bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }

  const HostileAnswer answer_;
  const net::Fd listener_;
  std::atomic<bool> isEnding_{false};
  std::atomic<int> answers_{0};
  std::thread acceptor_;
  std::vector<std::thread> threads_;  // of the acceptor, until it has ended
};

}  // namespace sluice::membership
