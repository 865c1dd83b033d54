// What strangers may try at the port of a rank, and what becomes of them. In every case a real peer still
// gets its message through afterwards.
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <sluice/fabric/contract_world.h>
#include <sluice/fabric/tcp/claim.h>
#include <sluice/fabric/tcp/tcp_fabric.h>

namespace sluice::fabric {
namespace {

using namespace std::chrono_literals;
using contract::Completions;
using contract::pattern;
using contract::RankUnderTest;
using contract::view;

class Strangers : public testing::TestWithParam<Encrypt> {
 protected:
  Strangers() {
    options_.encrypt = GetParam();
    options_.handshakeDeadline = 200ms;
    options_.maxStrangers = 64;
    membership_.key = secret::JobKey::random();
    for (size_t i = 0; i < 2; ++i) {
      listeners_.push_back(TcpListener::open(Address::loopback(0)).value());
      membership_.addresses.push_back(listeners_.back().address());
    }
    start(victim_, Rank{0});
  }
  ~Strangers() override {
    peer_.fabric.reset();
    victim_.fabric.reset();
  }

  void start(RankUnderTest& rank, Rank number) {
    TcpMembership mine = membership_;
    mine.rank = number;
    rank.receiver.loop = &rank.thread.loop();
    rank.fabric =
        makeTcpFabric(rank.thread.loop(), std::move(listeners_[index(number)]), mine, options_, rank.receiver)
            .value();
  }

  base::Fd knock() {
    base::Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const Address& to = membership_.addresses[0];
    EXPECT_EQ(::connect(socket.get(), to.raw(), to.rawSize()), 0);
    const timeval patience{.tv_sec = 10, .tv_usec = 0};
    EXPECT_EQ(::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    return socket;
  }
  static void say(const base::Fd& socket, std::span<const std::byte> bytes) {
    // It may have hung up already; that is found out by reading.
    [[maybe_unused]] const auto sent = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // Reads what still comes and returns how much it was; fails if the other end does not hang up.
  static size_t bytesUntilHangUp(const base::Fd& socket) {
    std::array<std::byte, 4096> bytes{};
    size_t total = 0;
    while (true) {
      const auto got = ::recv(socket.get(), bytes.data(), bytes.size(), 0);
      if (got > 0) {
        total += static_cast<size_t>(got);
        continue;
      }
      EXPECT_TRUE(got == 0 || errno == ECONNRESET) << errno;
      return total;
    }
  }
  static std::vector<std::byte> hear(const base::Fd& socket, size_t bytes) {
    std::vector<std::byte> heard(bytes);
    const auto got = ::recv(socket.get(), heard.data(), heard.size(), MSG_WAITALL);
    heard.resize(got > 0 ? static_cast<size_t>(got) : 0);
    return heard;
  }

  void aPeerStillGetsThrough() {
    start(peer_, Rank{1});
    const auto payload = pattern(1000);
    peer_.fabric->send(Rank{0}, Lane::kBulk, {}, view(payload), sends_.expect());
    ASSERT_TRUE(victim_.receiver.waitLanded(1));
    ASSERT_TRUE(sends_.waitForAll());
    EXPECT_TRUE(sends_.status().isOk()) << sends_.status().toString();
    const contract::Seen seen = victim_.receiver.seen.get();
    EXPECT_EQ(seen.arrivals.size(), 1U);
    EXPECT_EQ(*seen.arrivals[0].bytes, payload);
    EXPECT_TRUE(seen.lost.empty());
  }
  uint64_t turnedAway() { return victim_.fabric->counters().strangers; }

  TcpOptions options_;
  TcpMembership membership_;
  std::vector<TcpListener> listeners_;
  Completions sends_;
  RankUnderTest victim_;
  RankUnderTest peer_;
};

TEST_P(Strangers, GarbageIsCutOff) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    const base::Fd socket = knock();
    say(socket, pattern(4096, seed));
    EXPECT_LT(bytesUntilHangUp(socket), 128U);
  }
  EXPECT_EQ(turnedAway(), 20U);
  aPeerStillGetsThrough();
}

TEST_P(Strangers, ALengthOfFourGibibytesIsNotBelieved) {
  const base::Fd socket = knock();
  std::vector<std::byte> bytes(72, std::byte{0xff});
  std::memcpy(bytes.data(), "SLUC", 4);
  say(socket, bytes);
  EXPECT_LT(bytesUntilHangUp(socket), 128U);
  EXPECT_EQ(turnedAway(), 1U);
  aPeerStillGetsThrough();
}

TEST_P(Strangers, SilenceIsCutOffAfterAWhile) {
  const base::Fd silent = knock();
  const base::Fd halfway = knock();
  say(halfway, pattern(3));
  EXPECT_EQ(bytesUntilHangUp(silent), 0U);
  bytesUntilHangUp(halfway);
  aPeerStillGetsThrough();
}

TEST_P(Strangers, AThousandAtOnceDoNotLockOutAPeer) {
  std::vector<base::Fd> crowd;
  for (int i = 0; i < 1000; ++i) crowd.push_back(knock());
  aPeerStillGetsThrough();
  crowd.clear();
}

TEST_P(Strangers, AnotherKeyIsRefusedAtBothEnds) {
  RankUnderTest stranger;
  TcpMembership theirs = membership_;
  theirs.rank = Rank{1};
  theirs.key = secret::JobKey::random();
  stranger.receiver.loop = &stranger.thread.loop();
  auto listener = TcpListener::open(Address::loopback(0)).value();
  stranger.fabric =
      makeTcpFabric(stranger.thread.loop(), std::move(listener), theirs, options_, stranger.receiver).value();
  Completions refused;
  const auto payload = pattern(10);
  stranger.fabric->send(Rank{0}, Lane::kBulk, {}, view(payload), refused.expect());
  ASSERT_TRUE(refused.waitForAll());
  EXPECT_EQ(refused.status().code(), Code::kPeerLost);
  stranger.fabric.reset();
  EXPECT_GE(turnedAway(), 1U);
  aPeerStillGetsThrough();
}

INSTANTIATE_TEST_SUITE_P(Tcp, Strangers, testing::Values(Encrypt::kOff, Encrypt::kOn),
                         [](const auto& each) { return each.param == Encrypt::kOn ? "encrypted" : "plain"; });

// A member of the job that speaks the plain handshake by hand, to say what no fabric of ours would.
class PlainStrangers : public Strangers {
 protected:
  struct Conversation {
    base::Fd socket;
    std::vector<std::byte> said;  // all that the client sent
  };
  Conversation shakeHands(const StreamClaim& claim) {
    Conversation result{knock(), {}};
    auto handshake = secret::Handshake::client(membership_.key, secret::Purpose::kFabric, claim.toBytes());
    const auto sayNext = [&] {
      const auto bytes = handshake.takeToSend();
      result.said.insert(result.said.end(), bytes.begin(), bytes.end());
      say(result.socket, bytes);
    };
    sayNext();
    const auto answer = hear(result.socket, handshake.expectedBytes());
    EXPECT_EQ(answer.size(), handshake.expectedBytes());
    EXPECT_TRUE(handshake.received(answer).isOk());
    sayNext();
    return result;
  }
};

TEST_P(PlainStrangers, AReplayedHandshakeIsRefused) {
  const StreamClaim claim{membership_.epoch, Rank{1}, Rank{0}, Lane::kUrgent};
  const Conversation first = shakeHands(claim);
  EXPECT_EQ(hear(first.socket, wire::kHeaderBytes).size(), wire::kHeaderBytes);  // the welcome: it was let in
  const base::Fd replay = knock();
  say(replay, first.said);
  // The server's answer, since a hello proves nothing yet, and no welcome after it.
  EXPECT_EQ(bytesUntilHangUp(replay), secret::Handshake::kAnswerBytes);
  EXPECT_EQ(turnedAway(), 1U);
}

TEST_P(PlainStrangers, AClaimThatCannotBeIsRefused) {
  const StreamClaim good{membership_.epoch, Rank{1}, Rank{0}, Lane::kUrgent};
  std::vector<StreamClaim> claims(5, good);
  claims[0].epoch = Epoch{7};
  claims[1].destination = Rank{1};
  claims[2].source = Rank{2};
  claims[3].source = Rank{0};
  claims[4].lane = static_cast<Lane>(3);
  for (const StreamClaim& claim : claims) EXPECT_EQ(bytesUntilHangUp(shakeHands(claim).socket), 0U);
  EXPECT_EQ(turnedAway(), claims.size());
  EXPECT_EQ(victim_.fabric->counters().drops.of(wire::Drop::kWrongEpoch), 1U);
  aPeerStillGetsThrough();
}

TEST_P(PlainStrangers, ALaneIsTakenOnce) {
  const StreamClaim claim{membership_.epoch, Rank{1}, Rank{0}, Lane::kUrgent};
  const Conversation first = shakeHands(claim);
  EXPECT_EQ(hear(first.socket, wire::kHeaderBytes).size(), wire::kHeaderBytes);
  EXPECT_EQ(bytesUntilHangUp(shakeHands(claim).socket), 0U);
  EXPECT_EQ(turnedAway(), 1U);
}

TEST_P(PlainStrangers, AHeaderWithoutItsSealEndsTheConnection) {
  const Conversation first = shakeHands({membership_.epoch, Rank{1}, Rank{0}, Lane::kUrgent});
  EXPECT_EQ(hear(first.socket, wire::kHeaderBytes).size(), wire::kHeaderBytes);
  const wire::Header header{
      .epoch = membership_.epoch, .source = Rank{1}, .destination = Rank{0}, .lane = Lane::kUrgent};
  say(first.socket, wire::seal(header, secret::Key::random()));
  ASSERT_TRUE(victim_.receiver.waitLost());
  EXPECT_EQ(victim_.fabric->counters().drops.of(wire::Drop::kBadCheck), 1U);
  EXPECT_TRUE(victim_.receiver.seen.get().arrivals.empty());
}

INSTANTIATE_TEST_SUITE_P(Tcp, PlainStrangers, testing::Values(Encrypt::kOff),
                         [](const auto&) { return "plain"; });

TEST(TcpFabric, WithoutAKeyOnlyLoopbackAddressesAreTaken) {
  base::LoopThread thread("test");
  contract::Recorder receiver;
  TcpMembership membership;
  membership.addresses = {Address::loopback(1), Address::parse("10.1.2.3:4000").value()};
  const auto make = [&](const TcpOptions& options) {
    return makeTcpFabric(thread.loop(), TcpListener::open(Address::loopback(0)).value(), membership, options,
                         receiver);
  };
  TcpOptions options;
  EXPECT_EQ(make(options).status().code(), Code::kPermissionDenied);
  options.insecure = true;
  EXPECT_TRUE(make(options).isOk());
  options.insecure = false;
  membership.key = secret::JobKey::random();
  EXPECT_TRUE(make(options).isOk());
}

}  // namespace
}  // namespace sluice::fabric
