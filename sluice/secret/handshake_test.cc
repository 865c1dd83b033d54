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
  for (size_t i = 0; i < claim.size(); ++i) claim[i] = static_cast<std::byte>(seed + static_cast<int>(i));
  return claim;
}

// What an eavesdropper sees of one conversation.
struct Recording {
  Bytes hello;
  Bytes answer;
  Bytes proof;
};

// Runs a handshake; `tamper` may change each message on its way (0 hello, 1 answer, 2 proof).
template <typename Tamper>
Status converse(Handshake& client, Handshake& server, Recording& seen, Tamper tamper) {
  seen.hello = take(client);
  tamper(0, seen.hello);
  SLUICE_RETURN_IF_ERROR(server.received(seen.hello));
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

TEST(Handshake, ADifferentKeyIsNoticedByWhoeverHearsTheProof) {
  const JobKey ours = JobKey::random();
  for (const JobKey& theirs : {JobKey::random(), JobKey::none()}) {
    auto client = Handshake::client(theirs, Purpose::kFabric, {});
    auto server = Handshake::server(ours, Purpose::kFabric);
    Recording seen;
    EXPECT_EQ(converse(client, server, seen, untouched).code(), Code::kPermissionDenied);
    EXPECT_FALSE(client.done());
    EXPECT_FALSE(server.done());
    // A stranger that does not care goes on all the same.
    EXPECT_EQ(server.received(Bytes(Handshake::kProofBytes)).code(), Code::kPermissionDenied);
    EXPECT_FALSE(server.done());
  }
}

TEST(Handshake, AnyBitChangedInAnyMessageEndsIt) {
  const JobKey key = JobKey::random();
  constexpr std::array kSizes{Handshake::kHelloBytes, Handshake::kAnswerBytes, Handshake::kProofBytes};
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
  ASSERT_TRUE(laterServer.received(seen.hello).isOk());
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
  auto stranger = Handshake::client(JobKey::random(), Purpose::kFabric, {});
  auto server = Handshake::server(key, Purpose::kFabric);
  ASSERT_TRUE(server.received(take(stranger)).isOk());
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
  EXPECT_TRUE(rc::check([&](std::array<uint8_t, 64> hello, std::array<uint8_t, 32> proof, bool sendGood) {
    auto server = Handshake::server(key, Purpose::kFabric);
    auto client = Handshake::client(key, Purpose::kFabric, {});
    const Status first = server.received(sendGood ? std::span<const std::byte>(take(client))
                                                  : std::as_bytes(std::span(hello)));
    if (first.isOk()) RC_ASSERT(!server.received(std::as_bytes(std::span(proof))).isOk());
    RC_ASSERT(!server.done());
    RC_ASSERT(server.expectedBytes() == 0U);
  }));
}

}  // namespace
}  // namespace sluice::secret
