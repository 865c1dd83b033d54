#include <sluice/secret/handshake.h>

#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace sluice::secret {
namespace {

using Bytes = std::vector<std::byte>;

Bytes take(Handshake& from) {
  const auto message = from.takeToSend();
  return {message.begin(), message.end()};
}

Claim claimOf(int seed) {
  Claim claim{};
  for (size_t i = 0; i < claim.size(); ++i)
    claim[i] = static_cast<std::byte>(seed + static_cast<int>(i));
  return claim;
}

// The messages of one conversation, as an eavesdropper sees them.
struct Recording {
  Bytes hello;
  Bytes answer;
  Bytes proof;
};

// Hands over a message in the parts in which the handshake takes it.
Status receiveAll(Handshake& to, std::span<const std::byte> message) {
  while (!message.empty()) {
    const size_t part = to.expectedBytes();
    SLUICE_RETURN_IF_ERROR(to.received(message.first(part)));
    message = message.subspan(part);
  }
  return base::ok();
}

// Runs a handshake; `tamper` may change each message on its way (0 hello, 1 answer, 2 proof).
template <typename Tamper>
Status converse(Handshake& client, Handshake& server, Recording& seen, Tamper tamper) {
  seen.hello = take(client);
  tamper(0, seen.hello);
  SLUICE_RETURN_IF_ERROR(receiveAll(server, seen.hello));
  seen.answer = take(server);
  tamper(1, seen.answer);
  SLUICE_RETURN_IF_ERROR(client.received(seen.answer));
  seen.proof = take(client);
  tamper(2, seen.proof);
  return server.received(seen.proof);
}

void untouched(int, Bytes&) {}

TEST(Handshake, EndsThatHoldTheKeyAgreeOnSessionKeysOfTheirOwn) {
  const JobKey key = JobKey::random();
  std::vector<Key> all;
  for (int round = 0; round < 3; ++round) {
    auto client = Handshake::client(key, Purpose::kRendezvous, claimOf(round));
    auto server = Handshake::server(key, Purpose::kRendezvous);
    Recording seen;
    ASSERT_TRUE(converse(client, server, seen, untouched).isOk());
    ASSERT_TRUE(client.done() && server.done());
    EXPECT_EQ(server.claim(), claimOf(round));
    EXPECT_EQ(client.sessionKeys().send, server.sessionKeys().receive);
    EXPECT_EQ(client.sessionKeys().receive, server.sessionKeys().send);
    all.push_back(client.sessionKeys().send);
    all.push_back(client.sessionKeys().receive);
  }
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(all[i], all[j]);
  }
}

TEST(Handshake, ADifferentKeyIsNoticedByTheServerInTheHelloAndByTheClientInTheAnswer) {
  const JobKey ours = JobKey::random();
  for (const JobKey& theirs : {JobKey::random(), JobKey::none()}) {
    auto client = Handshake::client(theirs, Purpose::kFabric, {});
    auto server = Handshake::server(ours, Purpose::kFabric);
    Recording seen;
    EXPECT_EQ(converse(client, server, seen, untouched).code(), Code::kPermissionDenied);
    EXPECT_FALSE(server.done() || server.heardHello());
    EXPECT_EQ(server.expectedBytes(), 0U);
    // The answer tells the client.
    EXPECT_EQ(client.received(take(server)).code(), Code::kPermissionDenied);
    EXPECT_FALSE(client.done());
  }
}

TEST(Handshake, AnyBitChangedInAnyMessageEndsIt) {
  const JobKey key = JobKey::random();
  constexpr std::array kSizes{Handshake::kHelloBytes, Handshake::kAnswerBytes,
                              Handshake::kProofBytes};
  for (int message = 0; message < 3; ++message) {
    for (size_t bit = 0; bit < 8 * kSizes[message]; ++bit) {
      auto client = Handshake::client(key, Purpose::kFabric, claimOf(1));
      auto server = Handshake::server(key, Purpose::kFabric);
      Recording seen;
      const Status status = converse(client, server, seen, [&](int which, Bytes& bytes) {
        if (which == message) bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
      });
      EXPECT_FALSE(status.isOk()) << "message " << message << " bit " << bit;
      EXPECT_FALSE(server.done()) << "message " << message << " bit " << bit;
    }
  }
}

TEST(Handshake, AReplayOfEitherEndFails) {
  const JobKey key = JobKey::random();
  auto client = Handshake::client(key, Purpose::kRendezvous, claimOf(3));
  auto server = Handshake::server(key, Purpose::kRendezvous);
  Recording seen;
  ASSERT_TRUE(converse(client, server, seen, untouched).isOk());

  auto laterServer = Handshake::server(key, Purpose::kRendezvous);
  ASSERT_TRUE(receiveAll(laterServer, seen.hello).isOk());
  EXPECT_TRUE(laterServer.heardHello())
      << "a replay gains a place among those who wait, and nothing else";
  EXPECT_NE(take(laterServer), seen.answer);
  EXPECT_FALSE(laterServer.received(seen.proof).isOk());
  EXPECT_FALSE(laterServer.done());

  auto laterClient = Handshake::client(key, Purpose::kRendezvous, claimOf(3));
  EXPECT_FALSE(laterClient.received(seen.answer).isOk());
  EXPECT_FALSE(laterClient.done());
  EXPECT_TRUE(laterClient.takeToSend().size() == 0);
}

TEST(Handshake, AServerIsNotSatisfiedByItsOwnProof) {
  const JobKey key = JobKey::random();
  auto recorded = Handshake::client(key, Purpose::kFabric, {});
  auto server = Handshake::server(key, Purpose::kFabric);
  ASSERT_TRUE(receiveAll(server, take(recorded)).isOk());
  const Bytes answer = take(server);
  const Bytes itsProof(answer.begin() + 32, answer.end());
  EXPECT_FALSE(server.received(itsProof).isOk());
}

TEST(Handshake, AnotherPurposeIsNamed) {
  const JobKey key = JobKey::random();
  auto client = Handshake::client(key, Purpose::kFabric, {});
  auto server = Handshake::server(key, Purpose::kRendezvous);
  Recording seen;
  const Status status = converse(client, server, seen, untouched);
  EXPECT_EQ(status.code(), Code::kRefused);
  EXPECT_NE(status.message().find("rendezvous"), std::string::npos);
}

TEST(Handshake, GarbageOfTheRightSizeNeverGetsIn) {
  const JobKey key = JobKey::random();
  EXPECT_TRUE(
      rc::check([&](std::array<uint8_t, 96> hello, std::array<uint8_t, 32> proof, bool sendGood) {
        auto server = Handshake::server(key, Purpose::kFabric);
        auto client = Handshake::client(key, Purpose::kFabric, {});
        const Status first = receiveAll(server, sendGood ? std::span<const std::byte>(take(client))
                                                         : std::as_bytes(std::span(hello)));
        if (first.isOk()) RC_ASSERT(!server.received(std::as_bytes(std::span(proof))).isOk());
        RC_ASSERT(!server.done());
        RC_ASSERT(server.expectedBytes() == 0U);
      }));
}

// Version 1 had a hello of 64 bytes: the server names it instead of waiting for the rest.
TEST(Handshake, AnotherVersionIsNamedFromItsFirstBytes) {
  auto client = Handshake::client(JobKey::random(), Purpose::kFabric, {});
  Bytes hello = take(client);
  hello.resize(64);
  hello[8] = std::byte{1};
  auto server = Handshake::server(JobKey::random(), Purpose::kFabric);
  ASSERT_EQ(server.expectedBytes(), hello.size());
  const Status status = server.received(hello);
  EXPECT_EQ(status.code(), Code::kRefused);
  EXPECT_NE(status.message().find("version 1 of the handshake, and this side version 2"),
            std::string::npos);
}

}  // namespace
}  // namespace sluice::secret
