// The attempts of strangers at the port of a rank, and their outcome. In every case a real peer
// still gets its message through afterwards.
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sluice/transport/fabric/tcp/claim.h>
#include <sluice/transport/fabric/tcp/plain_stream.h>
#include <sluice/transport/fabric/tcp/stream_maker.h>
#include <sluice/transport/fabric/tcp/tcp_fabric.h>
#include <sluice/transport/fabric/tcp/tls_stream.h>
#include <sluice/transport/fabric/testing/contract_recorder.h>

namespace sluice::fabric {
namespace {

using namespace std::chrono_literals;
using contract::Completions;
using contract::pattern;
using contract::ThreadRank;
using contract::view;
using testing::HasSubstr;

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

  void start(ThreadRank& rank, Rank number) {
    TcpMembership mine = membership_;
    mine.rank = number;
    rank.receiver.loop = &rank.thread.loop();
    rank.fabric = makeTcpFabric(rank.thread.loop(), std::move(listeners_[index(number)]), mine,
                                options_, rank.receiver)
                      .value();
  }

  net::Fd knock() {
    net::Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const Address& to = membership_.addresses[0];
    EXPECT_EQ(::connect(socket.get(), to.raw(), to.rawSize()), 0);
    const timeval patience{.tv_sec = 10, .tv_usec = 0};
    EXPECT_EQ(::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    return socket;
  }
  static void say(const net::Fd& socket, std::span<const std::byte> bytes) {
    // It may have hung up already; that is found out by reading.
    [[maybe_unused]] const auto sent =
        ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // Reads what still comes and returns how much it was; fails if the other end does not hang up.
  static size_t bytesUntilHangUp(const net::Fd& socket) {
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
  static std::vector<std::byte> hear(const net::Fd& socket, size_t bytes) {
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
  ThreadRank victim_;
  ThreadRank peer_;
};

TEST_P(Strangers, GarbageIsCutOff) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    const net::Fd socket = knock();
    say(socket, pattern(4096, seed));
    EXPECT_LT(bytesUntilHangUp(socket), 128U);
  }
  EXPECT_EQ(turnedAway(), 20U);
  aPeerStillGetsThrough();
}

TEST_P(Strangers, ALengthOfFourGibibytesIsNotBelieved) {
  const net::Fd socket = knock();
  std::vector<std::byte> bytes(72, std::byte{0xff});
  std::memcpy(bytes.data(), "SLUC", 4);
  say(socket, bytes);
  EXPECT_LT(bytesUntilHangUp(socket), 128U);
  EXPECT_EQ(turnedAway(), 1U);
  aPeerStillGetsThrough();
}

TEST_P(Strangers, SilenceIsCutOffAfterAWhile) {
  const net::Fd silent = knock();
  const net::Fd halfway = knock();
  say(halfway, pattern(3));
  EXPECT_EQ(bytesUntilHangUp(silent), 0U);
  bytesUntilHangUp(halfway);
  aPeerStillGetsThrough();
}

TEST_P(Strangers, AThousandAtOnceDoNotLockOutAPeer) {
  std::vector<net::Fd> crowd;
  for (int i = 0; i < 1000; ++i) crowd.push_back(knock());
  aPeerStillGetsThrough();
  crowd.clear();
}

TEST_P(Strangers, AnotherKeyIsRefusedAtBothEnds) {
  ThreadRank stranger;
  TcpMembership theirs = membership_;
  theirs.rank = Rank{1};
  theirs.key = secret::JobKey::random();
  stranger.receiver.loop = &stranger.thread.loop();
  auto listener = TcpListener::open(Address::loopback(0)).value();
  stranger.fabric = makeTcpFabric(stranger.thread.loop(), std::move(listener), theirs, options_,
                                  stranger.receiver)
                        .value();
  Completions refused;
  const auto payload = pattern(10);
  stranger.fabric->send(Rank{0}, Lane::kBulk, {}, view(payload), refused.expect());
  ASSERT_TRUE(refused.waitForAll());
  EXPECT_EQ(refused.status().code(), Code::kPeerLost);
  stranger.fabric.reset();
  // It may hear the refusal before the refusal is counted, on another thread.
  const auto until = std::chrono::steady_clock::now() + contract::kPatience;
  while (turnedAway() == 0 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  EXPECT_GE(turnedAway(), 1U);
  aPeerStillGetsThrough();
}

INSTANTIATE_TEST_SUITE_P(Tcp, Strangers, testing::Values(Encrypt::kOff, Encrypt::kOn),
                         [](const auto& each) {
                           return each.param == Encrypt::kOn ? "encrypted" : "plain";
                         });

// A member of the job that says by hand, through the same streams as ours, what no fabric of ours
// would say.
class MadMembers : public Strangers {
 protected:
  std::unique_ptr<Stream> connect(const StreamClaim& claim) {
    net::Fd socket = knock();
    EXPECT_EQ(::fcntl(socket.get(), F_SETFL, O_NONBLOCK), 0);
    auto stream = maker().client(std::move(socket), membership_.addresses[0], claim.toBytes());
    EXPECT_EQ(patiently(*stream, POLLIN, [&] { return stream->handshake(); }).outcome,
              Io::Outcome::kMoved);
    return stream;
  }
  template <typename F>
  static Io patiently(const Stream& stream, short events, F&& attempt) {
    while (true) {
      Io io = attempt();
      pollfd fd{.fd = stream.fd(), .events = events, .revents = 0};
      if (io.outcome != Io::Outcome::kWait || ::poll(&fd, 1, 10'000) != 1) return io;
    }
  }
  StreamMaker& maker() {
    if (!maker_) maker_ = std::make_unique<StreamMaker>(membership_.key, options_, /*peers=*/1);
    return *maker_;
  }
  StreamClaim freeLane() const { return {membership_.epoch, Rank{1}, Rank{0}, Lane::kUrgent}; }
  // Reads a welcome; false if the victim hangs up instead.
  static bool isLetIn(Stream& stream) {
    std::array<std::byte, wire::kHeaderBytes> welcome{};
    for (size_t got = 0; got < welcome.size();) {
      const iovec rest{welcome.data() + got, welcome.size() - got};
      const Io io = patiently(stream, POLLIN, [&] { return stream.read({&rest, 1}); });
      if (io.outcome != Io::Outcome::kMoved) return false;
      got += io.bytes;
    }
    return true;
  }
  // All in one piece as far as the stream takes it, until the victim hangs up.
  static void say(Stream& stream, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const iovec rest{const_cast<std::byte*>(bytes.data()), bytes.size()};
      const Io io = patiently(stream, POLLOUT, [&] { return stream.write({&rest, 1}); });
      if (io.outcome != Io::Outcome::kMoved) return;
      bytes = bytes.subspan(io.bytes);
    }
    if (stream.hasUnflushed()) patiently(stream, POLLOUT, [&] { return stream.flush(); });
  }
  // A connection that is let in, and both ends of the path to the victim.
  struct Relayed {
    std::unique_ptr<Stream> client;
    net::Fd ours;                 // the client's bytes come out here
    net::Fd victim;               // the client's bytes should be put in here
    std::vector<std::byte> said;  // all of the handshake that the client sent
  };
  Relayed connectThroughOurHands() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
    Relayed path{.client = nullptr, .ours = net::Fd(ends[1]), .victim = knock(), .said = {}};
    if (GetParam() == Encrypt::kOn) {
      const auto key = membership_.key.derive(secret::Purpose::kTlsPsk);
      path.client = TlsStream::client(std::make_shared<TlsContext>(key), net::Fd(ends[0]),
                                      freeLane().toBytes());
    } else {
      auto handshake = secret::Handshake::client(membership_.key, secret::Purpose::kFabric,
                                                 freeLane().toBytes());
      path.client = std::make_unique<PlainStream>(
          net::Fd(ends[0]), std::move(handshake),
          GetParam() == Encrypt::kIntegrity ? wire::PayloadCheckKind::kTag : options_.payloadCheck);
    }
    std::array<std::byte, 4096> bytes{};
    for (Io io = Io::wait(); io.outcome == Io::Outcome::kWait;) {
      io = path.client->handshake();
      EXPECT_NE(io.outcome, Io::Outcome::kFailed) << io.status.toString();
      if (const auto sent = ::recv(path.ours.get(), bytes.data(), bytes.size(), 0); sent > 0) {
        const auto part = std::span(bytes).first(static_cast<size_t>(sent));
        append(path.said, part);
        Strangers::say(path.victim, part);
      }
      if (io.outcome != Io::Outcome::kWait) break;
      const auto heard = ::recv(path.victim.get(), bytes.data(), bytes.size(), 0);
      EXPECT_GT(heard, 0);
      if (heard > 0) Strangers::say(path.ours, std::span(bytes).first(static_cast<size_t>(heard)));
    }
    return path;
  }
  wire::Header header(uint64_t sequence, uint64_t length,
                      wire::Flags flags = wire::Flags::kNone) const {
    return {.epoch = membership_.epoch,
            .source = Rank{1},
            .destination = Rank{0},
            .lane = Lane::kUrgent,
            .sequence = sequence,
            .flags = flags,
            .length = length};
  }
  // Header, payload and trailer as an honest member sends them.
  std::vector<std::byte> message(const Stream& stream, uint64_t sequence,
                                 const std::vector<std::byte>& payload) const {
    const secret::Key key = stream.sessionKeys().send;
    std::vector<std::byte> bytes;
    append(bytes, wire::seal(header(sequence, payload.size()), key));
    append(bytes, payload);
    wire::PayloadCheck check(stream.payloadCheck(), key);
    check.begin(sequence);
    check.add(payload);
    const auto trailer = check.end();
    append(bytes, std::span(trailer).first(check.trailerBytes(payload.size())));
    return bytes;
  }
  static void append(std::vector<std::byte>& bytes, std::span<const std::byte> more) {
    bytes.insert(bytes.end(), more.begin(), more.end());
  }
  // A lost rank stays lost: the next round of a test has a victim of its own.
  void nextVictim() {
    victim_.fabric.reset();
    victim_.receiver.seen.change([](contract::Seen& seen) { seen = {}; });
    listeners_[0] = TcpListener::open(Address::loopback(0)).value();
    membership_.addresses[0] = listeners_[0].address();
    start(victim_, Rank{0});
  }
  std::string whyLost() {
    EXPECT_TRUE(victim_.receiver.waitLost());
    return victim_.receiver.seen.get().lost.at(0).second.message();
  }

 private:
  std::unique_ptr<StreamMaker> maker_;
};

TEST_P(MadMembers, AReplayedHandshakeIsRefused) {
  const Relayed first = connectThroughOurHands();
  ASSERT_EQ(hear(first.victim, wire::kHeaderBytes).size(),
            wire::kHeaderBytes);  // the welcome: it was let in
  const net::Fd replay = knock();
  Strangers::say(replay, first.said);
  bytesUntilHangUp(replay);
  EXPECT_EQ(turnedAway(), 1U);
  EXPECT_EQ(victim_.fabric->counters().connections, 1U);
}

TEST_P(MadMembers, AByteChangedOnTheWayEndsTheConnection) {
  const Relayed path = connectThroughOurHands();
  ASSERT_EQ(hear(path.victim, wire::kHeaderBytes).size(), wire::kHeaderBytes);
  say(*path.client, wire::seal(header(0, 0), path.client->sessionKeys().send));
  std::array<std::byte, 4096> bytes{};
  const auto sent = ::recv(path.ours.get(), bytes.data(), bytes.size(), 0);
  ASSERT_GT(sent, 30);
  bytes[30] ^= std::byte{1};
  Strangers::say(path.victim, std::span(bytes).first(static_cast<size_t>(sent)));
  EXPECT_EQ(whyLost(), GetParam() == Encrypt::kOn
                           ? "rank 1 is lost: receiving: TLS: decryption failed or bad record mac"
                           : "rank 1 is lost: it sent a wrong header: bad check");
  EXPECT_TRUE(victim_.receiver.seen.get().arrivals.empty());
}

TEST_P(MadMembers, APayloadBitThatIsChangedOnTheWayIsNoticed) {
  if (GetParam() == Encrypt::kOn)
    return;  // to TLS all bytes are alike: AByteChangedOnTheWayEndsTheConnection
  const bool isTag = GetParam() == Encrypt::kIntegrity;
  for (const size_t at : {size_t{0}, size_t{150'000}, size_t{299'999}, size_t{300'000}}) {
    SCOPED_TRACE(at);
    const Relayed path = connectThroughOurHands();
    ASSERT_EQ(hear(path.victim, wire::kHeaderBytes).size(), wire::kHeaderBytes);
    auto bytes = message(*path.client, 0, pattern(300'000));
    bytes[wire::kHeaderBytes + at] ^= std::byte{4};
    Strangers::say(path.victim, bytes);
    EXPECT_THAT(whyLost(), HasSubstr("rank 1 is lost: the payload of epoch 0, 1 -> 0 urgent #0: "));
    EXPECT_THAT(whyLost(),
                HasSubstr(isTag ? "does not match its tag" : "does not match its checksum"));
    for (const auto& arrival : victim_.receiver.seen.get().arrivals) {
      EXPECT_EQ(arrival.status.code(), Code::kPeerLost);
    }
    EXPECT_EQ(victim_.fabric->counters().messagesReceived, 0U);
    EXPECT_EQ(victim_.fabric->counters().drops.of(wire::Drop::kBadPayload), 1U);
    nextVictim();
  }
}

TEST_P(MadMembers, APayloadUnderAnotherHeaderIsNoticed) {
  const auto member = connect(freeLane());
  if (member->payloadCheck() == wire::PayloadCheckKind::kNone)
    return;  // TLS orders its records itself
  EXPECT_TRUE(isLetIn(*member));
  // Two payloads of one length, exchanged with their trailers.
  const auto first = message(*member, 0, pattern(100, 1));
  const auto second = message(*member, 1, pattern(100, 2));
  std::vector<std::byte> bytes;
  append(bytes, std::span(first).first(wire::kHeaderBytes));
  append(bytes, std::span(second).subspan(wire::kHeaderBytes));
  say(*member, bytes);
  EXPECT_THAT(whyLost(), HasSubstr("does not match its"));
}

TEST_P(MadMembers, AClaimThatCannotBeIsRefused) {
  std::vector<StreamClaim> claims(5, freeLane());
  claims[0].epoch = Epoch{7};
  claims[1].destination = Rank{1};
  claims[2].source = Rank{2};
  claims[3].source = Rank{0};
  claims[4].lane = static_cast<Lane>(3);
  for (const StreamClaim& claim : claims) EXPECT_FALSE(isLetIn(*connect(claim)));
  EXPECT_EQ(turnedAway(), claims.size());
  EXPECT_EQ(victim_.fabric->counters().drops.of(wire::Drop::kWrongEpoch), 1U);
  aPeerStillGetsThrough();
}

TEST_P(MadMembers, ALaneIsTakenOnce) {
  const auto first = connect(freeLane());
  EXPECT_TRUE(isLetIn(*first));
  EXPECT_FALSE(isLetIn(*connect(freeLane())));
  EXPECT_EQ(turnedAway(), 1U);
}

TEST_P(MadMembers, AHeaderWithoutItsSealEndsTheConnection) {
  const auto member = connect(freeLane());
  EXPECT_TRUE(isLetIn(*member));
  say(*member, wire::seal(header(0, 0), secret::Key::random()));
  EXPECT_EQ(whyLost(), "rank 1 is lost: it sent a wrong header: bad check");
  EXPECT_EQ(victim_.fabric->counters().drops.of(wire::Drop::kBadCheck), 1U);
  EXPECT_TRUE(victim_.receiver.seen.get().arrivals.empty());
}

TEST_P(MadMembers, BytesAfterAGoodbyeEndTheConnection) {
  for (const size_t before : {size_t{0}, size_t{300'000}}) {
    SCOPED_TRACE(before);
    const auto member = connect(freeLane());
    EXPECT_TRUE(isLetIn(*member));
    const secret::Key key = member->sessionKeys().send;
    std::vector<std::byte> bytes;
    uint64_t sequence = 0;
    if (before > 0) {
      append(bytes, message(*member, sequence++, pattern(before)));
    }
    append(bytes, wire::seal(header(sequence, 0, wire::Flags::kGoodbye), key));
    append(bytes, pattern(300'000));
    say(*member, bytes);
    EXPECT_EQ(whyLost(), "rank 1 is lost: it sent bytes after its goodbye");
    EXPECT_EQ(victim_.receiver.seen.get().landed, before > 0 ? 1U : 0U);
    nextVictim();
  }
}

TEST_P(MadMembers, AGoodbyeWithAPayloadEndsTheConnection) {
  const auto member = connect(freeLane());
  EXPECT_TRUE(isLetIn(*member));
  say(*member, wire::seal(header(0, 8, wire::Flags::kGoodbye), member->sessionKeys().send));
  EXPECT_EQ(whyLost(), "rank 1 is lost: it sent a wrong header: too long");
  EXPECT_TRUE(victim_.receiver.seen.get().left.empty());
}

INSTANTIATE_TEST_SUITE_P(Tcp, MadMembers,
                         testing::Values(Encrypt::kOff, Encrypt::kIntegrity, Encrypt::kOn),
                         [](const auto& each) {
                           return each.param == Encrypt::kOn          ? "encrypted"
                                  : each.param == Encrypt::kIntegrity ? "integrity"
                                                                      : "plain";
                         });

TEST(TcpFabric, WithoutAKeyOnlyLoopbackAddressesAreTaken) {
  net::LoopThread thread("test");
  contract::ReceiptRecorder receiver;
  TcpMembership membership;
  membership.addresses = {Address::loopback(1), Address::parse("10.1.2.3:4000").value()};
  const auto make = [&](const TcpOptions& options) {
    return makeTcpFabric(thread.loop(), TcpListener::open(Address::loopback(0)).value(), membership,
                         options, receiver);
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
