// For tests: rank 0's server on its own loop thread, and ranks on another, as two hosts would have
// them.
#pragma once

#include <future>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include <sluice/base/net/epoll_loop.h>
#include <sluice/join/rendezvous/local_store.h>
#include <sluice/join/rendezvous/remote_store.h>
#include <sluice/join/rendezvous/server.h>

namespace sluice::rendezvous {

// Runs `body` on the loop and gives back what it returns.
template <typename Body>
auto onLoop(net::EpollLoop& loop, Body body) {
  std::packaged_task<decltype(body())()> task(std::move(body));
  auto result = task.get_future();
  loop.post([&task] { task(); });
  return result.get();
}

// A future and the completion that fulfils it; completing twice throws, so "exactly once" is
// checked.
template <typename T>
auto completion(std::future<T>& future) {
  auto promise = std::make_shared<std::promise<T>>();
  future = promise->get_future();
  return [promise](T value) { promise->set_value(std::move(value)); };
}

class TestServer final {
 public:
  explicit TestServer(ServerOptions options) : thread_("rank 0") {
    options.listen = Address::loopback(0);
    onLoop(loop(), [&] {
      server_ = Server::start(loop(), std::move(options)).value();
      local_ = std::make_unique<LocalStore>(loop(), server_->table(), Rank{0});
    });
  }
  ~TestServer() { stop(); }

  // Stops the server, as when rank 0 dies.
  void stop() {
    if (!server_) return;
    onLoop(loop(), [&] {
      local_.reset();
      server_.reset();
    });
  }

  net::EpollLoop& loop() { return thread_.loop(); }
  Server& server() { return *server_; }
  Store& store() { return *local_; }
  uint16_t port() const { return server_->port(); }
  Address address() const { return Address::loopback(port()); }
  Strangers strangers() {
    return onLoop(loop(), [&] { return server_->strangers(); });
  }
  size_t memberCount() {
    return onLoop(loop(), [&] { return server_->memberCount(); });
  }

 private:
  net::LoopThread thread_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<LocalStore> local_;
};

// One rank; `loop` is shared by many.
class TestRank final {
 public:
  TestRank(net::EpollLoop& loop, RemoteOptions options) : loop_(loop) {
    onLoop(loop_, [&] { store_ = std::make_unique<RemoteStore>(loop_, std::move(options)); });
  }
  ~TestRank() { stop(); }
  TestRank(const TestRank&) = delete;
  TestRank& operator=(const TestRank&) = delete;

  void stop() {
    onLoop(loop_, [&] { store_.reset(); });
  }

  std::future<Status> join() {
    std::future<Status> joined;
    auto done = completion(joined);
    loop_.post([this, done] { store_->join(done); });
    return joined;
  }

  std::future<Result<std::vector<std::string>>> gather(const std::string& key,
                                                       const std::string& value, Duration timeout) {
    std::future<Result<std::vector<std::string>>> gathered;
    auto got = completion(gathered);
    loop_.post([this, key, value, timeout, got] { store_->gather(key, value, timeout, got); });
    return gathered;
  }

  Store& store() { return *store_; }
  secret::JobNonce jobNonce() {
    return onLoop(loop_, [&] { return store_->jobNonce(); });
  }

 private:
  net::EpollLoop& loop_;
  std::unique_ptr<RemoteStore> store_;
};

}  // namespace sluice::rendezvous
