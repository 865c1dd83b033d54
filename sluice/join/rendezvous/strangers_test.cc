// Strangers at rank 0's port, a thousand at once of each kind, while eight ranks join: no stranger
// may be let in, learn more than that somebody speaks the handshake, or keep the ranks from
// meeting.
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sluice/join/rendezvous/connection.h>
#include <sluice/join/rendezvous/testing/test_world.h>
#include <sluice/secret/seal.h>

namespace sluice::rendezvous {
namespace {

using namespace std::chrono_literals;
using secret::Handshake;
using secret::JobKey;

constexpr uint32_t kJobSize = 8;
constexpr int kStrangers = 1000;

// A socket as a stranger has it: blocking, with an end to every wait.
class RawSocket final {
 public:
  explicit RawSocket(const Address& to)
      : socket_(::socket(to.family(), SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    EXPECT_TRUE(socket_.valid()) << errno;
    const timeval patience{.tv_sec = 20, .tv_usec = 0};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    EXPECT_EQ(::connect(socket_.get(), to.raw(), to.rawSize()), 0) << errno;
  }

  void send(std::span<const std::byte> bytes) {
    (void)::send(socket_.get(), bytes.data(), bytes.size(),
                 MSG_NOSIGNAL);  // it may have been dropped already
  }
  void send(const std::string& bytes) { send(std::as_bytes(std::span(bytes))); }

  std::string receive(size_t bytes) {
    std::string got(bytes, '\0');
    const ssize_t count = ::recv(socket_.get(), got.data(), bytes, MSG_WAITALL);
    got.resize(static_cast<size_t>(std::max<ssize_t>(count, 0)));
    return got;
  }

  // Returns everything until the other side closes; fails the test if it does not.
  std::string receiveUntilClosed() {
    std::string all;
    std::array<char, 4096> buffer{};
    while (true) {
      const ssize_t count = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
      if (count > 0) all.append(buffer.data(), static_cast<size_t>(count));
      if (count == 0 || (count < 0 && errno == ECONNRESET)) return all;
      if (count < 0) {
        ADD_FAILURE() << "the stranger was not dropped: errno " << errno;
        return all;
      }
    }
  }

 private:
  net::Fd socket_;
};

// Goes through the handshake as a member does; returns the bytes that it sent.
std::string shakeHands(RawSocket& socket, Handshake& client) {
  const auto hello = client.takeToSend();
  std::string sent(reinterpret_cast<const char*>(hello.data()), hello.size());
  socket.send(hello);
  const std::string answer = socket.receive(Handshake::kAnswerBytes);
  EXPECT_TRUE(client.received(std::as_bytes(std::span(answer))).isOk());
  const auto proof = client.takeToSend();
  sent.append(reinterpret_cast<const char*>(proof.data()), proof.size());
  socket.send(proof);
  return sent;
}

std::string randomBytes(size_t count) {
  std::string bytes(count, '\0');
  secret::fillRandom(std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

struct Kind {
  std::string name;
  // Called on each stranger's fresh connection.
  std::function<void(RawSocket&)> behave;
  bool mayBeAnswered =
      false;  // true iff it sends a well-formed hello, so that the fixed-size answer comes back
};

std::vector<Kind> allKinds(const std::string& recorded) {
  const auto withHelloOf = [](JobKey key) {
    return [key](RawSocket& socket) {
      auto client = Handshake::client(key, secret::Purpose::kRendezvous, claimOf(Rank{1}));
      socket.send(client.takeToSend());
      socket.send(randomBytes(Handshake::kProofBytes));
    };
  };
  return {
      {"NoKey", withHelloOf(JobKey::none()), true},
      {"WrongKey", withHelloOf(JobKey::random()), true},
      {"Garbage", [](RawSocket& socket) { socket.send(randomBytes(4096)); }},
      {"Http",
       [](RawSocket& socket) {
         socket.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n" + std::string(64, ' '));
       }},
      {"Length4GiB",
       [](RawSocket& socket) { socket.send("\xff\xff\xff\xff" + std::string(1000, 'x')); }},
      {"Replay", [recorded](RawSocket& socket) { socket.send(recorded); }, true},
      {"HalfOpen", [](RawSocket& socket) { socket.send("sluicehs"); }},
      {"Silent", [](RawSocket&) {}},
      {"SilentAfterHello",
       [](RawSocket& socket) {
         auto client = Handshake::client(JobKey::random(), secret::Purpose::kRendezvous, {});
         socket.send(client.takeToSend());
       },
       true},
  };
}

class AtThePort : public testing::TestWithParam<size_t> {
 protected:
  AtThePort() { raiseFileLimit(10'000); }

  ServerOptions serverOptions() {
    return {.listen = {},
            .key = key_,
            .worldSize = kJobSize,
            .agreement = {},
            .handshakeDeadline = 1s,
            .maxStrangers =
                300};  // fewer than the strangers, so that dropping the oldest is put to the test
  }

  // Eight ranks meet; returns how long it took.
  Duration meet(TestServer& server) {
    const auto begun = std::chrono::steady_clock::now();
    std::vector<std::unique_ptr<TestRank>> ranks;
    std::vector<std::future<Status>> joined;
    for (uint32_t r = 1; r < kJobSize; ++r) {
      ranks.push_back(
          std::make_unique<TestRank>(thread_.loop(), RemoteOptions{.master = {server.address()},
                                                                   .key = key_,
                                                                   .rank = Rank{r},
                                                                   .agreement = {},
                                                                   .timeout = 30s}));
      joined.push_back(ranks.back()->join());
    }
    for (auto& each : joined) EXPECT_EQ(each.get(), base::ok());
    std::vector<std::future<Result<std::vector<std::string>>>> gathered;
    for (auto& rank : ranks) gathered.push_back(rank->gather("start", "here", 30s));
    std::future<Result<std::vector<std::string>>> zero;
    auto got = completion(zero);
    server.loop().post([&, got] { server.store().gather("start", "here", 30s, got); });
    for (auto& each : gathered)
      EXPECT_EQ(each.get().value(), std::vector<std::string>(kJobSize, "here"));
    EXPECT_TRUE(zero.get().isOk());
    EXPECT_EQ(server.memberCount(), kJobSize - 1);
    return std::chrono::steady_clock::now() - begun;
  }

  const JobKey key_ = JobKey::random();
  net::LoopThread thread_{"ranks"};
};

INSTANTIATE_TEST_SUITE_P(Strangers, AtThePort, testing::Range<size_t>(0, allKinds("").size()),
                         [](const auto& which) { return allKinds("")[which.param].name; });

TEST_P(AtThePort, AThousandAtOnceAreKeptOutAndDisturbNobody) {
  TestServer server(serverOptions());
  std::string recorded;
  {
    RawSocket member(server.address());
    auto client = Handshake::client(key_, secret::Purpose::kRendezvous, claimOf(Rank{1}));
    recorded = shakeHands(member, client);
    secret::Sealer sealer(client.sessionKeys().send);
    sealer.seal(std::as_bytes(std::span(std::string_view("join"))), {}, recorded);
  }
  const Kind kind = allKinds(recorded)[GetParam()];

  std::vector<RawSocket> strangers;
  strangers.reserve(kStrangers);
  std::thread crowd([&] {
    for (int i = 0; i < kStrangers; ++i) {
      strangers.emplace_back(server.address());
      kind.behave(strangers.back());
    }
  });
  const Duration took = meet(server);
  crowd.join();
  EXPECT_LT(took, 20s);
  fmt::print("{} strangers of kind {}: eight ranks met in {:.0f} ms\n", kStrangers, kind.name,
             1e3 * base::seconds(took));

  // The kernel forgets a connection that never said a word, without telling its other end; so every
  // stranger says one.
  for (auto& stranger : strangers) stranger.send("x");
  for (auto& stranger : strangers) {
    const std::string heard = stranger.receiveUntilClosed();
    if (kind.mayBeAnswered) {
      EXPECT_TRUE(heard.empty() || heard.size() == Handshake::kAnswerBytes) << heard.size();
    } else {
      EXPECT_TRUE(heard.empty()) << heard.size();
    }
  }
  if (kind.name != "Silent") {
    EXPECT_GE(server.strangers().total(), static_cast<uint64_t>(kStrangers));
  }
  meet(server);  // and the port is as good as new
}

// A member that goes mad after its proof is dropped, and only it.
TEST(Member, ThatSendsNonsenseIsDroppedAlone) {
  const JobKey key = JobKey::random();
  TestServer server({.listen = {}, .key = key, .worldSize = 3, .agreement = {}});
  net::LoopThread thread("ranks");
  TestRank good(thread.loop(),
                {.master = {server.address()}, .key = key, .rank = Rank{2}, .agreement = {}});
  ASSERT_EQ(good.join().get(), base::ok());
  for (const std::string& nonsense :
       {std::string("\xff\xff\xff\xff"), std::string("\xff\xff\xff\x7f"), std::string(4, '\0'),
        "\x20" + std::string(2, '\0') + "\x80" + std::string(32, 'x')}) {
    RawSocket mad(server.address());
    auto client = Handshake::client(key, secret::Purpose::kRendezvous, claimOf(Rank{1}));
    shakeHands(mad, client);
    mad.send(nonsense);
    EXPECT_EQ(mad.receiveUntilClosed(), "");
  }
  EXPECT_EQ(server.memberCount(), 1U);
  EXPECT_EQ(server.strangers().garbage, 4U);
}

}  // namespace
}  // namespace sluice::rendezvous
