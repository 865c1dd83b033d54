#include <sluice/transport/fabric/tcp/tls_stream.h>

#include <fcntl.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sluice/transport/fabric/testing/contract_recorder.h>

namespace sluice::fabric {
namespace {

using Outcome = Io::Outcome;

// Both ends of a connection in one thread, after their handshake.
class TlsPair : public testing::Test {
 protected:
  void connect(uint64_t keyUpdateBytes = TlsContext::kKeyUpdateBytes) {
    const auto context = std::make_shared<const TlsContext>(secret::Key::random(), keyUpdateBytes);
    std::array<int, 2> ends{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
    client_ = TlsStream::client(context, net::Fd(ends[0]), {});
    server_ = TlsStream::server(context, net::Fd(ends[1]));
    Io client = Io::wait();
    Io server = Io::wait();
    for (int i = 0;
         i < 10 && (client.outcome == Outcome::kWait || server.outcome == Outcome::kWait); ++i) {
      client = client_->handshake();
      server = server_->handshake();
    }
    ASSERT_EQ(client.outcome, Outcome::kMoved) << client.status.toString();
    ASSERT_EQ(server.outcome, Outcome::kMoved) << server.status.toString();
  }
  static TlsStream& tls(const std::unique_ptr<Stream>& stream) {
    return dynamic_cast<TlsStream&>(*stream);
  }
  static Io readInto(Stream& stream, std::span<std::byte> bytes) {
    const iovec piece{bytes.data(), bytes.size()};
    return stream.read({&piece, 1});
  }
  static Io writeFrom(Stream& stream, std::span<const std::byte> bytes) {
    const iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
    return stream.write({&piece, 1});
  }
  // Sends `bytes` from one end and returns what the other end got of it.
  static std::vector<std::byte> carry(Stream& from, Stream& to, std::span<const std::byte> bytes) {
    std::vector<std::byte> got(bytes.size());
    size_t sent = 0;
    for (size_t there = 0; there < got.size();) {
      if (sent < bytes.size()) {
        const Io io = writeFrom(from, bytes.subspan(sent));
        if (io.outcome == Outcome::kMoved) sent += io.bytes;
      } else if (from.hasUnflushed()) {
        EXPECT_NE(from.flush().outcome, Outcome::kFailed);
      }
      const Io io = readInto(to, std::span(got).subspan(there));
      EXPECT_NE(io.outcome, Outcome::kFailed) << io.status.toString();
      if (io.outcome != Outcome::kMoved && io.outcome != Outcome::kWait) break;
      there += io.bytes;
    }
    return got;
  }

  std::unique_ptr<Stream> client_;
  std::unique_ptr<Stream> server_;
};

TEST_F(TlsPair, IsTls13WithAFreshExchangeAndNoTickets) {
  connect();
  const auto bytes = contract::pattern(100);
  ASSERT_EQ(carry(*server_, *client_, bytes), bytes);  // a ticket would have come before it
  for (const auto* stream : {&client_, &server_}) {
    SSL* ssl = tls(*stream).ssl();
    EXPECT_STREQ(SSL_get_version(ssl), "TLSv1.3");
    EXPECT_STREQ(SSL_get_cipher_name(ssl), "TLS_AES_128_GCM_SHA256");
    EXPECT_EQ(SSL_session_reused(ssl), 1);  // the pre-shared key was used,
    EVP_PKEY* fresh =
        nullptr;  // and a key of the other end that lives no longer than the connection
    EXPECT_EQ(SSL_get_peer_tmp_key(ssl, &fresh), 1);
    EVP_PKEY_free(fresh);
    EXPECT_EQ(SSL_get_num_tickets(ssl), 0U);
    EXPECT_EQ(SSL_SESSION_has_ticket(SSL_get0_session(ssl)), 0);
    EXPECT_EQ(SSL_get0_peer_certificate(ssl), nullptr);
    EXPECT_EQ(SSL_get_early_data_status(ssl), SSL_EARLY_DATA_NOT_SENT);
  }
}

TEST_F(TlsPair, OlderVersionsAndExchangesWithoutFreshKeysAreRefused) {
  for (const bool isOlder : {true, false}) {
    const auto context = std::make_shared<const TlsContext>(secret::Key::random());
    std::array<int, 2> ends{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
    client_ = TlsStream::client(context, net::Fd(ends[0]), {});
    server_ = TlsStream::server(context, net::Fd(ends[1]));
    if (isOlder) {
      ASSERT_EQ(SSL_set_min_proto_version(tls(client_).ssl(), TLS1_2_VERSION), 1);
      ASSERT_EQ(SSL_set_max_proto_version(tls(client_).ssl(), TLS1_2_VERSION), 1);
    } else {
      SSL_set_options(tls(client_).ssl(), SSL_OP_ALLOW_NO_DHE_KEX);
      ASSERT_EQ(SSL_set1_groups_list(tls(client_).ssl(), "ffdhe8192"),
                1);  // the server would have to retry
      ASSERT_EQ(SSL_set1_groups_list(tls(server_).ssl(), "X25519"), 1);
    }
    Io server = Io::wait();
    for (int i = 0; i < 10 && server.outcome == Outcome::kWait; ++i) {
      [[maybe_unused]] const Io client = client_->handshake();
      server = server_->handshake();
    }
    EXPECT_EQ(server.outcome, Outcome::kFailed);
  }
}

TEST_F(TlsPair, GoesOnWithANewKeyOften) {
  constexpr size_t kMegabyte = 1'000'000;
  connect(kMegabyte);
  const auto bytes = contract::pattern(10 * kMegabyte);
  EXPECT_TRUE(carry(*client_, *server_, bytes) == bytes);
  // One batch more than the limit may go under a key.
  EXPECT_GE(tls(client_).keyUpdates().sent, 8U);
  EXPECT_LE(tls(client_).keyUpdates().sent, 10U);
  EXPECT_EQ(tls(server_).keyUpdates().received, tls(client_).keyUpdates().sent);
  EXPECT_EQ(tls(server_).keyUpdates().sent, 0U);
  EXPECT_TRUE(carry(*server_, *client_, bytes) == bytes);
  EXPECT_GE(tls(server_).keyUpdates().sent, 8U);
  EXPECT_EQ(tls(client_).keyUpdates().received, tls(server_).keyUpdates().sent);
}

TEST_F(TlsPair, UpdatesNoKeyBeforeItsTime) {
  connect();
  const auto bytes = contract::pattern(1'000'000);
  EXPECT_TRUE(carry(*client_, *server_, bytes) == bytes);
  EXPECT_EQ(tls(client_).keyUpdates().sent, 0U);
}

// The answers go out though nothing else is written, and cannot pile up without end.
TEST_F(TlsPair, AnEndThatKeepsAskingForNewKeysIsCutOff) {
  connect();
  std::array<std::byte, 16> room{};
  Io io = Io::wait();
  for (int i = 0; i < 50'000 && io.outcome == Outcome::kWait; ++i) {
    ASSERT_EQ(SSL_key_update(tls(client_).ssl(), SSL_KEY_UPDATE_REQUESTED), 1);
    ASSERT_EQ(SSL_do_handshake(tls(client_).ssl()), 1);
    ASSERT_EQ(client_->flush().outcome, Outcome::kMoved);
    io = readInto(*server_, room);
    if (i == 0) {
      EXPECT_FALSE(server_->hasUnflushed());
    }
  }
  EXPECT_EQ(io.outcome, Outcome::kFailed);
  EXPECT_THAT(io.status.message(), testing::HasSubstr("new keys"));
}

TEST_F(TlsPair, AReadWithoutRoomIsAnErrorAndNotASuccess) {
  connect();
  const auto bytes = contract::pattern(10);
  ASSERT_EQ(writeFrom(*client_, bytes).bytes, 10U);
  EXPECT_EQ(readInto(*server_, {}).outcome, Outcome::kFailed);
  EXPECT_EQ(server_->read({}).outcome, Outcome::kFailed);
}

}  // namespace
}  // namespace sluice::fabric
