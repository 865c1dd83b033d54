#include <sluice/transport/fabric/tcp/tls_stream.h>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/sslerr.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include <fmt/format.h>

#include <sluice/base/check.h>
#include <sluice/base/log.h>

namespace sluice::fabric {
namespace {

constexpr const char* kCipherSuite = "TLS_AES_128_GCM_SHA256";

constexpr std::string_view kIdentityPrefix = "sluice fabric 1 ";
constexpr size_t kIdentityBytes = kIdentityPrefix.size() + sizeof(secret::Claim);
constexpr std::string_view kExportLabel = "sluice fabric header keys";
constexpr std::array<unsigned char, 2> kAes128GcmSha256{0x13, 0x01};

// One call of the kernel carries several TLS records of 16 KiB; more only adds to what cannot be
// recalled.
constexpr size_t kBatchBytes = size_t{128} << 10;
constexpr int kMostSealedBytes = int{kBatchBytes} + (32 << 10);

using Identity = std::array<unsigned char, kIdentityBytes>;

Identity identityOf(const secret::Claim& claim) {
  Identity identity{};
  std::memcpy(identity.data(), kIdentityPrefix.data(), kIdentityPrefix.size());
  std::memcpy(identity.data() + kIdentityPrefix.size(), claim.data(), claim.size());
  return identity;
}

// The pre-shared key in the form in which OpenSSL takes it. The caller owns it; null if it cannot
// be made.
SSL_SESSION* makeSession(SSL* ssl, const secret::Key& key) {
  const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl, kAes128GcmSha256.data());
  SSL_SESSION* session = SSL_SESSION_new();
  if (session == nullptr) return nullptr;
  const auto bytes = key.bytes();
  if (cipher == nullptr ||
      SSL_SESSION_set1_master_key(session, reinterpret_cast<const unsigned char*>(bytes.data()),
                                  bytes.size()) != 1 ||
      SSL_SESSION_set_cipher(session, cipher) != 1 ||
      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) != 1) {
    SSL_SESSION_free(session);
    return nullptr;
  }
  return session;
}

struct AppData {
  const secret::Key* key;
  secret::Claim* claim;
  TlsKeyUpdates* keyUpdates;
  Identity identity;
};

AppData& appData(SSL* ssl) {
  return *static_cast<AppData*>(SSL_get_app_data(ssl));
}

int useSession(SSL* ssl, const EVP_MD* digest, const unsigned char** id, size_t* idBytes,
               SSL_SESSION** session) {
  *session = nullptr;
  // After a retry TLS asks for a key that fits a digest; ours fits SHA-256 only.
  if (digest != nullptr && EVP_MD_get_type(digest) != NID_sha256) return 0;
  AppData& data = appData(ssl);
  *session = makeSession(ssl, *data.key);
  *id = data.identity.data();
  *idBytes = data.identity.size();
  return *session != nullptr ? 1 : 0;
}

int findSession(SSL* ssl, const unsigned char* identity, size_t bytes, SSL_SESSION** session) {
  *session = nullptr;
  AppData& data = appData(ssl);
  // An identity we do not know is answered as if there were no key: without certificates TLS then
  // ends.
  if (bytes != kIdentityBytes ||
      std::memcmp(identity, kIdentityPrefix.data(), kIdentityPrefix.size()) != 0)
    return 1;
  std::memcpy(data.claim->data(), identity + kIdentityPrefix.size(), data.claim->size());
  *session = makeSession(ssl, *data.key);
  return *session != nullptr ? 1 : 0;
}

// Sees every message of TLS's own, in both directions.
void noticeMessage(int isSent, int, int type, const void* message, size_t bytes, SSL* ssl, void*) {
  if (type != SSL3_RT_HANDSHAKE || bytes == 0) return;
  if (*static_cast<const unsigned char*>(message) != SSL3_MT_KEY_UPDATE) return;
  TlsKeyUpdates& updates = *appData(ssl).keyUpdates;
  const uint64_t count = isSent != 0 ? ++updates.sent : ++updates.received;
  log("fabric").debug("TLS: key update {} {}", count, isSent != 0 ? "sent" : "received");
}

std::string tlsError() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  if (code == 0) return "unexpected end";
  const char* reason = ERR_reason_error_string(code);
  return reason != nullptr ? reason : "unknown reason";
}

}  // namespace

Status TlsContext::check() {
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_method()),
                                                                  &SSL_CTX_free);
  if (context != nullptr && SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION) == 1 &&
      SSL_CTX_set_ciphersuites(context.get(), kCipherSuite) == 1)
    return base::ok();
  return {Code::kUnavailable,
          fmt::format("OpenSSL cannot encrypt here ({}): look at OPENSSL_CONF and openssl.cnf",
                      tlsError())};
}

TlsContext::TlsContext(const secret::Key& presharedKey, uint64_t keyUpdateBytes)
    : presharedKey_(presharedKey),
      keyUpdateBytes_(keyUpdateBytes),
      context_(SSL_CTX_new(TLS_method())) {
  SLUICE_CHECK(context_ != nullptr, tlsError());
  SLUICE_CHECK(SSL_CTX_set_min_proto_version(context_, TLS1_3_VERSION) == 1);
  SLUICE_CHECK(SSL_CTX_set_ciphersuites(context_, kCipherSuite) == 1);
  SSL_CTX_set_psk_use_session_callback(context_, &useSession);
  SSL_CTX_set_psk_find_session_callback(context_, &findSession);
  SSL_CTX_set_msg_callback(context_, &noticeMessage);
  // Tickets and early data would let bytes of one connection be used in another, which the
  // claim in the identity is there to prevent. A write returns after each record, and the next
  // one may start from another address: the caller gathers its pieces anew each time.
  SSL_CTX_set_options(context_, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_num_tickets(context_, 0);
  SSL_CTX_set_max_early_data(context_, 0);
  SSL_CTX_set_session_cache_mode(context_, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context_, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  // A read that meets only messages of TLS's own returns, so that an end that sends nothing else
  // cannot keep us in it.
  SSL_CTX_clear_mode(context_, SSL_MODE_AUTO_RETRY);
  // Read-ahead takes several records with one call of the kernel.
  SSL_CTX_set_read_ahead(context_, 1);
  SSL_CTX_set_default_read_buffer_len(context_, kBatchBytes);
}

TlsContext::~TlsContext() {
  SSL_CTX_free(context_);
}

std::unique_ptr<Stream> TlsStream::client(std::shared_ptr<const TlsContext> context, net::Fd socket,
                                          const secret::Claim& claim) {
  return std::unique_ptr<Stream>(
      new TlsStream(Role::kClient, std::move(context), std::move(socket), claim));
}

std::unique_ptr<Stream> TlsStream::server(std::shared_ptr<const TlsContext> context,
                                          net::Fd socket) {
  return std::unique_ptr<Stream>(
      new TlsStream(Role::kServer, std::move(context), std::move(socket), {}));
}

TlsStream::TlsStream(Role role, std::shared_ptr<const TlsContext> context, net::Fd socket,
                     const secret::Claim& claim)
    : role_(role),
      context_(std::move(context)),
      socket_(std::move(socket)),
      claim_(claim),
      ssl_(SSL_new(context_->get())),
      sealed_(BIO_new(BIO_s_mem())) {
  // TLS reads from the socket itself and writes into memory. Sealed records then leave in one
  // call for several of them, and with MSG_NOSIGNAL: OpenSSL's own socket writes would kill the
  // process when the peer is gone.
  BIO* fromSocket = BIO_new_socket(socket_.get(), BIO_NOCLOSE);
  SLUICE_CHECK(ssl_ != nullptr && sealed_ != nullptr && fromSocket != nullptr);
  SSL_set0_rbio(ssl_, fromSocket);
  SSL_set0_wbio(ssl_, sealed_);
  // The callbacks of a context serve all connections, so each finds its own key and claim
  // through the SSL object. The pointers lead into this stream, which can be neither copied nor
  // moved.
  auto data = std::make_unique<AppData>(
      AppData{&context_->presharedKey(), &claim_, &keyUpdates_, identityOf(claim_)});
  SSL_set_app_data(ssl_, data.release());
  if (role_ == Role::kClient) {
    SSL_set_connect_state(ssl_);
  } else {
    SSL_set_accept_state(ssl_);
  }
}

TlsStream::~TlsStream() {
  delete &appData(ssl_);
  SSL_free(ssl_);
}

Io TlsStream::fromTls(int result, const char* what) const {
  // OpenSSL keeps its errors in a queue per thread, not per connection. Every call that may
  // fail clears it first, together with errno; otherwise the fault of one connection would be
  // reported for the next one.
  switch (SSL_get_error(ssl_, result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE: return Io::wait();
    case SSL_ERROR_ZERO_RETURN: return Io::end();
    case SSL_ERROR_SYSCALL:
      if (errno != 0) return Io::failed(base::fromErrno(what));
      return Io::failed(Status(Code::kPeerLost, fmt::format("{}: the connection was cut", what)));
    default:
      if (ERR_GET_REASON(ERR_peek_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
        ERR_clear_error();
        return Io::failed(Status(Code::kPeerLost, fmt::format("{}: the connection was cut", what)));
      }
      return Io::failed(Status(Code::kRefused, fmt::format("{}: TLS: {}", what, tlsError())));
  }
}

Io TlsStream::handshake() {
  ERR_clear_error();
  errno = 0;
  const int result = SSL_do_handshake(ssl_);
  const Io io = result == 1 ? Io::moved(0) : fromTls(result, "handshake");
  // TLS's own messages go out first, an alert to a stranger included.
  const Io flushed = flush();
  if (io.outcome != Io::Outcome::kMoved) return io;
  // A handshake without the pre-shared key cannot succeed here; this check is for the day when
  // somebody adds certificates.
  if (SSL_session_reused(ssl_) != 1)
    return Io::failed(Status(Code::kRefused, "handshake: the other side did not use the job key"));
  return flushed;
}

// OpenSSL has taken the pre-shared key as soon as the binder in the client's first message fits it.
bool TlsStream::saidHello() const {
  return SSL_session_reused(ssl_) == 1;
}

uint32_t TlsStream::handshakeEvents() const {
  return hasUnflushed() ? EPOLLIN | EPOLLOUT : EPOLLIN;
}

secret::SessionKeys TlsStream::sessionKeys() const {
  // Headers are sealed with keys of their own, taken from this TLS session by the standard's
  // exporter. They differ by direction, so a header cannot be sent back to the rank that made
  // it.
  std::array<secret::Key, 2> keys;  // of the client's direction, of the server's
  std::array<unsigned char, 2 * secret::kKeyBytes> exported{};
  SLUICE_CHECK(SSL_export_keying_material(ssl_, exported.data(), exported.size(),
                                          kExportLabel.data(), kExportLabel.size(), nullptr, 0,
                                          0) == 1);
  for (size_t i = 0; i < keys.size(); ++i) {
    std::memcpy(keys[i].mutableBytes().data(), exported.data() + i * secret::kKeyBytes,
                secret::kKeyBytes);
  }
  OPENSSL_cleanse(exported.data(), exported.size());
  if (role_ == Role::kClient) return {.send = keys[0], .receive = keys[1]};
  return {.send = keys[1], .receive = keys[0]};
}

// One record of TLS holds 16 KiB, so one call of SSL_read_ex() fills at most that much. Going
// on until TLS has nothing more is what makes a large read one event of the loop.
Io TlsStream::read(std::span<const iovec> into) {
  size_t total = 0;
  for (const iovec& piece : into) {
    size_t filled = 0;
    while (filled < piece.iov_len) {
      ERR_clear_error();
      errno = 0;
      size_t got = 0;
      const int result = SSL_read_ex(ssl_, static_cast<char*>(piece.iov_base) + filled,
                                     piece.iov_len - filled, &got);
      if (result != 1) {
        // Bytes that came first are given first; the next call finds the end or the fault again.
        Io io = total > 0 ? Io::moved(total) : fromTls(result, "receiving");
        flushAnswers(io);
        return io;
      }
      filled += got;
      total += got;
    }
  }
  if (total == 0)
    return Io::failed(Status(Code::kInternal, "receiving: no room for a single byte"));
  return Io::moved(total);
}

// Reading may make TLS write: it answers the other end's request for new keys. An end that keeps
// asking without reading the answers must not make us keep them all.
void TlsStream::flushAnswers(Io& io) {
  if (!hasUnflushed()) return;
  // A failure is found again by the next write, and must not hide what was read.
  [[maybe_unused]] const Io flushed = flush();
  if (io.outcome == Io::Outcome::kWait && BIO_pending(sealed_) > kMostSealedBytes)
    io = Io::failed(
        Status(Code::kRefused, "receiving: TLS: it asks for new keys and reads no answer"));
}

bool TlsStream::hasUnread() const {
  return SSL_has_pending(ssl_) == 1;
}

Io TlsStream::write(std::span<const iovec> from) {
  if (hasUnflushed()) {
    if (const Io io = flush(); io.outcome != Io::Outcome::kMoved) return io;
  }
  // Only this direction gets a new key: each sender counts its own bytes.
  if (underThisKey_ >= context_->keyUpdateBytes()) {
    // Nothing more is to be done: TLS itself sends the message that names the new key, ahead of the
    // next record.
    if (SSL_key_update(ssl_, SSL_KEY_UPDATE_NOT_REQUESTED) != 1)
      return Io::failed(
          Status(Code::kInternal, fmt::format("sending: TLS key update: {}", tlsError())));
    underThisKey_ = 0;
  }
  // A batch bounds what is sealed but not sent. Sealed bytes are beyond recall, like those in
  // the kernel: more of them would only let a more urgent message wait longer. They count as
  // taken from the caller, and flush() brings the rest out later.
  size_t total = 0;
  for (const iovec& piece : from) {
    size_t taken = 0;
    while (taken < piece.iov_len && total < kBatchBytes) {
      ERR_clear_error();
      errno = 0;
      size_t wrote = 0;
      const size_t want = std::min(piece.iov_len - taken, kBatchBytes - total);
      const int result =
          SSL_write_ex(ssl_, static_cast<const char*>(piece.iov_base) + taken, want, &wrote);
      if (result != 1) {
        const Io io = fromTls(result, "sending");
        if (total == 0) return io;
        // Bytes that are sealed already count as taken; the fault is found again by the next call.
        const Io flushed = flush();
        return flushed.outcome == Io::Outcome::kFailed ? flushed : Io::moved(total);
      }
      taken += wrote;
      total += wrote;
      underThisKey_ += wrote;
    }
    if (total == kBatchBytes) break;
  }
  const Io io = flush();
  if (io.outcome == Io::Outcome::kFailed) return io;
  return Io::moved(total);
}

bool TlsStream::hasUnflushed() const {
  return BIO_pending(sealed_) > 0;
}

Io TlsStream::flush() {
  char* data = nullptr;
  const auto bytes = static_cast<size_t>(BIO_get_mem_data(sealed_, &data));
  while (sealedSent_ < bytes) {
    const ssize_t sent = ::send(fd(), data + sealedSent_, bytes - sealedSent_, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return Io::wait();
      return Io::failed(base::fromErrno("sending"));
    }
    sealedSent_ += static_cast<size_t>(sent);
  }
  sealedSent_ = 0;
  BIO_reset(sealed_);
  return Io::moved(0);
}

void TlsStream::endWrites() {
  ERR_clear_error();
  SSL_shutdown(ssl_);  // the "close notify" that tells an end from a cut
  [[maybe_unused]] const Io flushed = flush();
  ::shutdown(fd(), SHUT_WR);
}

}  // namespace sluice::fabric
