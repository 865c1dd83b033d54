// Four ranks with 50 ms between them meet while strangers flood rank 0's rendezvous port and a
// fabric port: from another address and from the ranks' own, thousands of connections a second
// each.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sluice/join/rendezvous/testing/test_world.h>
#include <sluice/transport/fabric/tcp/tcp_fabric.h>
#include <sluice/transport/fabric/testing/contract_recorder.h>

namespace sluice {
namespace {

using namespace std::chrono_literals;
using fabric::contract::Completions;
using fabric::contract::ThreadRank;
using rendezvous::onLoop;

constexpr uint32_t kRanks = 4;
constexpr std::chrono::seconds kFloodTime{5};
constexpr Duration kAway = 50ms;  // in each direction
constexpr Duration kRetry = 5ms;

// Passes bytes on in both directions, late. A socket may take them later still: in a flood, its
// connection may not be made yet.
class LongWay final {
 public:
  LongWay(net::EpollLoop& loop, Address to) : loop_(loop), to_(std::move(to)) {
    listener_ = net::Fd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const Address any = Address::loopback(0);
    EXPECT_EQ(::bind(listener_.get(), any.raw(), any.rawSize()), 0);
    EXPECT_EQ(::listen(listener_.get(), 64), 0);
    address_ = Address::localOf(listener_.get());
    onLoop(loop_, [&] { loop_.watch(listener_.get(), EPOLLIN, [this](uint32_t) { accept(); }); });
  }
  ~LongWay() {
    onLoop(loop_, [&] {
      loop_.unwatch(listener_.get());
      for (auto& pipe : pipes_) pipe->close();
    });
  }
  LongWay(const LongWay&) = delete;
  LongWay& operator=(const LongWay&) = delete;
  const Address& address() const { return address_; }

 private:
  struct Pipe : std::enable_shared_from_this<Pipe> {
    Pipe(net::EpollLoop& aLoop, net::Fd near, net::Fd far)
        : loop(aLoop), ends{std::move(near), std::move(far)} {}
    void start() {
      for (size_t end = 0; end < ends.size(); ++end) {
        loop.watch(ends[end].get(), EPOLLIN, [self = weak_from_this(), end](uint32_t) {
          if (const auto pipe = self.lock()) pipe->pass(end);
        });
      }
    }
    void pass(size_t end) {
      std::array<char, 65536> bytes{};
      const ssize_t got = ::recv(ends[end].get(), bytes.data(), bytes.size(), 0);
      if (got < 0 && errno == EAGAIN) return;
      if (got <= 0) loop.unwatch(ends[end].get());
      const std::string text(bytes.data(), static_cast<size_t>(std::max<ssize_t>(got, 0)));
      loop.after(kAway, [self = weak_from_this(), end, text] {
        const auto pipe = self.lock();
        if (!pipe) return;
        pipe->unsent[1 - end] += text;
        if (text.empty()) pipe->ended[1 - end] = true;
        pipe->flush(1 - end);
      });
    }
    void flush(size_t end) {
      if (!ends[end].valid()) return;
      std::string& text = unsent[end];
      if (!text.empty()) {
        const ssize_t sent = ::send(ends[end].get(), text.data(), text.size(), MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN) return text.clear();
        text.erase(0, static_cast<size_t>(std::max<ssize_t>(sent, 0)));
      }
      if (!text.empty()) {
        loop.after(kRetry, [self = weak_from_this(), end] {
          if (const auto pipe = self.lock()) pipe->flush(end);
        });
      } else if (ended[end]) {
        ::shutdown(ends[end].get(), SHUT_WR);
      }
    }
    void close() {
      for (auto& end : ends) {
        if (end.valid()) loop.unwatch(end.get());
        end.reset();
      }
    }
    net::EpollLoop& loop;
    std::array<net::Fd, 2> ends;
    std::array<std::string, 2> unsent;
    std::array<bool, 2> ended{};
  };

  void accept() {
    net::Fd near(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!near.valid()) return;
    net::Fd far(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (::connect(far.get(), to_.raw(), to_.rawSize()) != 0 && errno != EINPROGRESS) return;
    pipes_.push_back(std::make_shared<Pipe>(loop_, std::move(near), std::move(far)));
    pipes_.back()->start();
  }

  net::EpollLoop& loop_;
  const Address to_;
  net::Fd listener_;
  Address address_;
  std::vector<std::shared_ptr<Pipe>> pipes_;
};

// A process that this test starts and ends.
class FloodProcess final {
 public:
  explicit FloodProcess(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), FLOOD_PROGRAM);
    std::vector<char*> texts;
    for (auto& argument : arguments) texts.push_back(argument.data());
    texts.push_back(nullptr);
    std::array<int, 2> pipe{};
    EXPECT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
    output_ = net::Fd(pipe[0]);
    const net::Fd toChild(pipe[1]);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, toChild.get(), STDOUT_FILENO);
    EXPECT_EQ(::posix_spawn(&child_, FLOOD_PROGRAM, &actions, nullptr, texts.data(), environ), 0);
    ::posix_spawn_file_actions_destroy(&actions);
  }
  ~FloodProcess() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  // Waits for its end; returns how many connections it made a second, of each kind.
  std::vector<int> rates() {
    std::array<char, 256> text{};
    std::string all;
    for (ssize_t got = 1; got > 0;) {
      got = ::read(output_.get(), text.data(), text.size());
      if (got > 0) all.append(text.data(), static_cast<size_t>(got));
    }
    std::vector<int> rates;
    std::istringstream numbers(all);
    for (int rate = 0; numbers >> rate;) rates.push_back(rate);
    return rates;
  }
  FloodProcess(const FloodProcess&) = delete;
  FloodProcess& operator=(const FloodProcess&) = delete;

 private:
  pid_t child_ = 0;
  net::Fd output_;
};

class Floods : public testing::TestWithParam<fabric::Encrypt> {};

TEST_P(Floods, RanksThatAreFarApartStillMeet) {
  const secret::JobKey key = secret::JobKey::random();
  net::LoopThread network("network");
  net::LoopThread stores("ranks");
  rendezvous::TestServer server({.listen = {}, .key = key, .worldSize = kRanks, .agreement = {}});
  LongWay toServer(network.loop(), server.address());

  std::vector<fabric::TcpListener> listeners;
  std::vector<std::unique_ptr<LongWay>> ways;
  fabric::TcpMembership membership;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    listeners.push_back(fabric::TcpListener::open(Address::loopback(0)).value());
    ways.push_back(std::make_unique<LongWay>(network.loop(), listeners.back().address()));
    membership.addresses.push_back(ways.back()->address());
  }

  const auto port = [](const Address& address) { return std::to_string(address.port()); };
  const std::string meeting = port(server.address());
  const std::string fabricPort = port(listeners[0].address());
  FloodProcess flood({std::to_string(kFloodTime.count()), "2500", "127.0.0.2:" + meeting,
                      "127.0.0.1:" + meeting, "127.0.0.2:" + fabricPort,
                      "127.0.0.1:" + fabricPort});
  std::this_thread::sleep_for(1s);  // so that all queues are full of strangers
  const auto begun = std::chrono::steady_clock::now();

  std::vector<std::unique_ptr<rendezvous::TestRank>> ranks;
  std::vector<std::future<Status>> joined;
  for (uint32_t rank = 1; rank < kRanks; ++rank) {
    rendezvous::RemoteOptions options{.master = {toServer.address()},
                                      .key = key,
                                      .rank = Rank{rank},
                                      .agreement = {},
                                      .timeout = 30s};
    ranks.push_back(std::make_unique<rendezvous::TestRank>(stores.loop(), options));
    joined.push_back(ranks.back()->join());
  }
  for (auto& each : joined) ASSERT_EQ(each.get(), base::ok());
  const Duration met = std::chrono::steady_clock::now() - begun;

  membership.key = key.forJob(ranks.front()->jobNonce());
  membership.door = door::makeDoorThread();
  fabric::TcpOptions options;
  options.encrypt = GetParam();
  Completions sends;
  std::array<ThreadRank, kRanks> nodes;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    fabric::TcpMembership mine = membership;
    mine.rank = Rank{rank};
    nodes[rank].receiver.loop = &nodes[rank].thread.loop();
    nodes[rank].fabric =
        fabric::makeTcpFabric(nodes[rank].thread.loop(), std::move(listeners[rank]), mine, options,
                              nodes[rank].receiver)
            .value();
  }
  const auto payload = fabric::contract::pattern(1000);
  for (uint32_t from = 0; from < kRanks; ++from) {
    for (uint32_t to = 0; to < kRanks; ++to) {
      if (from == to) continue;
      for (const auto lane : {fabric::Lane::kControl, fabric::Lane::kUrgent, fabric::Lane::kBulk}) {
        nodes[from].fabric->send(Rank{to}, lane, {}, fabric::contract::view(payload),
                                 sends.expect());
      }
    }
  }
  for (auto& node : nodes) EXPECT_TRUE(node.receiver.waitLanded(3 * (kRanks - 1)));
  ASSERT_TRUE(sends.waitForAll());
  EXPECT_EQ(sends.countOf(Code::kOk), 3 * kRanks * (kRanks - 1));
  const Duration all = std::chrono::steady_clock::now() - begun;
  fmt::print(
      "in the flood four ranks met in {:.2f} s and had all 36 connections after {:.2f} s; {} and "
      "{} "
      "strangers\n",
      base::seconds(met), base::seconds(all), server.strangers().total(),
      nodes[0].fabric->counters().strangers);
  // The flood lasted all the while, and the ranks noticed it.
  EXPECT_LT(all, kFloodTime - 1s);
  const auto rates = flood.rates();
  ASSERT_EQ(rates.size(), 4U);
  EXPECT_GE(rates[0] + rates[1], 2500) << "at rank 0's rendezvous port";
  EXPECT_GE(rates[2] + rates[3], 2500) << "at a fabric port";
  EXPECT_GT(server.strangers().total(), 1000U);
  EXPECT_GT(nodes[0].fabric->counters().strangers, 1000U);
  for (auto& node : nodes) EXPECT_TRUE(node.receiver.seen.get().lost.empty());
  for (auto& node : nodes) node.fabric.reset();
}

INSTANTIATE_TEST_SUITE_P(Tcp, Floods, testing::Values(fabric::Encrypt::kOff, fabric::Encrypt::kOn),
                         [](const auto& each) {
                           return each.param == fabric::Encrypt::kOn ? "encrypted" : "plain";
                         });

}  // namespace
}  // namespace sluice
