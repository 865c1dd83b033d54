// A rank's connection to rank 0 breaks, over real sockets with a relay between them.
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sluice/base/mutex.h>
#include <sluice/join/rendezvous/testing/test_world.h>

namespace sluice::rendezvous {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

// Passes the bytes of one connection after another on to rank 0, and breaks them when told to.
class Relay final {
 public:
  explicit Relay(const Address& to)
      : to_(to), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const Address any = Address::loopback(0);
    EXPECT_EQ(::bind(listener_.get(), any.raw(), any.rawSize()), 0);
    EXPECT_EQ(::listen(listener_.get(), 16), 0);
    thread_ = std::thread([this] { run(); });
  }
  ~Relay() {
    isOver_ = true;
    thread_.join();
  }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  Address address() const { return Address::localOf(listener_.get()); }
  int connections() const { return connections_; }

  void leadTo(const Address& to) {
    to_.with([&](Address& now) { now = to; });
  }
  // Both ends see a reset, as when a box on the way forgets the connection.
  void cut() { order(Order::kCut); }
  // Only the rank sees it: rank 0 still holds its end.
  void cutRankOnly() { order(Order::kCutRankOnly); }
  // Connections are neither passed on nor accepted any more.
  void cutForGood() { order(Order::kCutForGood); }

 private:
  enum class Order { kNone, kCut, kCutRankOnly, kCutForGood };
  void order(Order what) {
    order_ = what;
    while (order_ != Order::kNone) std::this_thread::sleep_for(1ms);
  }

  static void reset(net::Fd& fd) {
    const linger now{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
    fd.reset();
  }

  void obey() {
    const Order what = order_;
    if (what == Order::kNone) return;
    if (what == Order::kCutRankOnly) held_.push_back(std::move(server_));
    reset(rank_);
    reset(server_);
    if (what == Order::kCutForGood) listener_.reset();
    order_ = Order::kNone;
  }

  // True iff the connection goes on.
  static bool pass(const net::Fd& from, const net::Fd& to) {
    std::array<char, 4096> bytes{};
    const ssize_t got = ::recv(from.get(), bytes.data(), bytes.size(), 0);
    return got > 0 && ::send(to.get(), bytes.data(), static_cast<size_t>(got), MSG_NOSIGNAL) == got;
  }

  void run() {
    while (!isOver_) {
      obey();
      std::array<pollfd, 3> ready{pollfd{listener_.get(), POLLIN, 0},
                                  pollfd{rank_.get(), POLLIN, 0}, pollfd{server_.get(), POLLIN, 0}};
      if (::poll(ready.data(), ready.size(), 5) <= 0) continue;
      if (ready[0].revents != 0) {
        rank_ = net::Fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        server_ = net::Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        const Address to = to_.with([](const Address& now) { return now; });
        if (::connect(server_.get(), to.raw(), to.rawSize()) == 0) ++connections_;
        continue;
      }
      const bool goesOn = (ready[1].revents == 0 || pass(rank_, server_)) &&
                          (ready[2].revents == 0 || pass(server_, rank_));
      if (goesOn) continue;
      rank_.reset();
      server_.reset();
    }
  }

  base::Guarded<Address> to_;
  net::Fd listener_;
  net::Fd rank_;
  net::Fd server_;
  std::vector<net::Fd> held_;
  std::atomic<Order> order_{Order::kNone};
  std::atomic<int> connections_{0};
  std::atomic<bool> isOver_{false};
  std::thread thread_;
};

class Reconnecting : public testing::Test {
 protected:
  static ServerOptions serverOptions(const secret::JobKey& key) {
    return {.listen = {},
            .key = key,
            .worldSize = 2,
            .agreement = Agreement(base::Config(), 2),
            .returnGrace = std::chrono::seconds(20)};
  }
  void SetUp() override { ASSERT_EQ(rank_.join().get(), base::ok()); }

  std::future<Result<std::vector<std::string>>> gatherAtZero(const std::string& value) {
    std::future<Result<std::vector<std::string>>> gathered;
    auto got = completion(gathered);
    server_.loop().post([this, value, got] { server_.store().gather("key", value, 60s, got); });
    return gathered;
  }
  std::future<Result<std::string>> waitFor(const std::string& key) {
    std::future<Result<std::string>> future;
    auto got = completion(future);
    ranks_.loop().post([this, key, got] { rank_.store().wait(key, 60s, got); });
    return future;
  }
  Status setAtRank(const std::string& key, const std::string& value) {
    std::future<Status> future;
    auto done = completion(future);
    ranks_.loop().post([this, key, value, done] { rank_.store().set(key, value, done); });
    return future.get();
  }
  std::string atZero(const std::string& key) {
    return onLoop(server_.loop(), [&] {
      const auto value = server_.server().table().get(key);
      return value.isOk() ? **value : value.status().message();
    });
  }
  void waitUntilConnectedAgain(int connections) const {
    while (relay_.connections() < connections) std::this_thread::sleep_for(5ms);
  }

  const secret::JobKey key_ = secret::JobKey::random();
  net::LoopThread ranks_{"ranks"};
  TestServer server_{serverOptions(key_)};
  Relay relay_{server_.address()};
  TestRank rank_{ranks_.loop(),
                 {.master = {relay_.address()},
                  .key = key_,
                  .rank = Rank{1},
                  .agreement = Agreement(base::Config(), 2)}};
};

TEST_F(Reconnecting, WaitsAndNotesOutliveABrokenConnection) {
  auto waiting = waitFor("later");
  EXPECT_EQ(setAtRank("before", "1"), base::ok());
  for (int i = 0; i < 5; ++i) {
    relay_.cut();
    EXPECT_EQ(setAtRank("after", std::to_string(i)), base::ok());
    EXPECT_EQ(atZero("after"), std::to_string(i));
  }
  EXPECT_EQ(waiting.wait_for(0s), std::future_status::timeout);
  onLoop(server_.loop(), [&] { return server_.server().table().set("later", "now").isOk(); });
  EXPECT_EQ(waiting.get().value(), "now");
  EXPECT_EQ(server_.memberCount(), 1U);
  EXPECT_EQ(server_.strangers().refused, 0U);
}

TEST_F(Reconnecting, AGatherCountsOnceHoweverOftenItIsRepeated) {
  auto one = rank_.gather("key", "one", 60s);
  EXPECT_EQ(one.wait_for(20ms), std::future_status::timeout);
  relay_.cut();
  waitUntilConnectedAgain(2);
  relay_.cut();
  auto zero = gatherAtZero("zero");
  EXPECT_THAT(zero.get().value(), ElementsAre("zero", "one"));
  EXPECT_THAT(one.get().value(), ElementsAre("zero", "one"));
  // The next round of the same key.
  one = rank_.gather("key", "two", 60s);
  EXPECT_THAT(gatherAtZero("three").get().value(), ElementsAre("three", "two"));
  EXPECT_THAT(one.get().value(), ElementsAre("three", "two"));
}

TEST_F(Reconnecting, OthersWaitForARankWhoseConnectionBroke) {
  auto zero = gatherAtZero("zero");
  relay_.cut();
  auto one = rank_.gather("key", "one", 60s);
  EXPECT_THAT(zero.get().value(), ElementsAre("zero", "one"));
  EXPECT_THAT(one.get().value(), ElementsAre("zero", "one"));
}

TEST_F(Reconnecting, ARankTakesItsOwnPlaceWhileItsFormerConnectionIsStillHeld) {
  relay_.cutRankOnly();
  EXPECT_EQ(setAtRank("after", "1"), base::ok());
  EXPECT_EQ(server_.memberCount(), 1U);
  EXPECT_EQ(server_.strangers().refused, 0U);
}

TEST_F(Reconnecting, ARankThatDoesNotComeBackIsNamed) {
  ServerOptions options = serverOptions(key_);
  options.returnGrace = 100ms;
  TestServer server(std::move(options));
  Relay relay(server.address());
  TestRank rank(ranks_.loop(), {.master = {relay.address()},
                                .key = key_,
                                .rank = Rank{1},
                                .agreement = Agreement(base::Config(), 2)});
  ASSERT_EQ(rank.join().get(), base::ok());
  std::future<Result<std::vector<std::string>>> zero;
  auto got = completion(zero);
  server.loop().post([&] { server.store().gather("key", "zero", 60s, got); });
  relay.cutForGood();
  const auto gathered = zero.get();
  EXPECT_EQ(gathered.status().code(), Code::kPeerLost);
  EXPECT_THAT(gathered.status().message(), HasSubstr("rank 1 is gone"));
  // The rank is told that rank 0 is gone, as nobody listens there any more.
  EXPECT_EQ(rank.gather("key", "one", 60s).get().status().code(), Code::kPeerLost);
}

TEST_F(Reconnecting, AnotherJobAtTheSameAddressIsNotTakenForThisOne) {
  auto waiting = waitFor("later");
  EXPECT_EQ(waiting.wait_for(20ms), std::future_status::timeout);
  TestServer another(serverOptions(key_));
  relay_.leadTo(another.address());
  relay_.cut();
  const auto got = waiting.get();
  EXPECT_EQ(got.status().code(), Code::kPeerLost);
  EXPECT_THAT(got.status().message(), HasSubstr("job that is over"));
}

}  // namespace
}  // namespace sluice::rendezvous
