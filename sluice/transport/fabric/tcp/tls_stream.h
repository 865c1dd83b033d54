// A Stream inside TLS 1.3. The job's key is the external pre-shared key, with a fresh
// Diffie-Hellman exchange for each connection, so that a key that leaks later opens no recording.
// No certificates, no session tickets, no early data: nothing of one connection can be used in
// another.
//
// The identity that the client sends with the pre-shared key is the claim; TLS binds it to the
// proof of the key, so a stranger can neither make one up nor change one.
#pragma once

#include <openssl/types.h>

#include <memory>

#include <sluice/base/net/fd.h>
#include <sluice/transport/fabric/tcp/stream.h>

namespace sluice::fabric {

// The settings that all connections of a fabric share.
class TlsContext final {
 public:
  // RFC 8446 (5.5) allows 2^24.5 records under one AES-GCM key, 388 GB. We update the key after a
  // sixth of that.
  static constexpr uint64_t kKeyUpdateBytes = uint64_t{64} << 30;

  // Returns an error if OpenSSL cannot be used here, as with a broken OPENSSL_CONF. REQUIRES of
  // code that makes a context: it has called this first.
  static Status check();

  // A connection's sender goes on with a new key after every `keyUpdateBytes` sent bytes.
  explicit TlsContext(const secret::Key& presharedKey, uint64_t keyUpdateBytes = kKeyUpdateBytes);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  SSL_CTX* get() const { return context_; }
  const secret::Key& presharedKey() const { return presharedKey_; }
  uint64_t keyUpdateBytes() const { return keyUpdateBytes_; }

 private:
  const secret::Key presharedKey_;
  const uint64_t keyUpdateBytes_;
  SSL_CTX* context_;
};

// The number of times that a connection has gone on with a new key, in each direction.
struct TlsKeyUpdates {
  uint64_t sent = 0;
  uint64_t received = 0;
};

class TlsStream final : public Stream {
 public:
  static std::unique_ptr<Stream> client(std::shared_ptr<const TlsContext> context, net::Fd socket,
                                        const secret::Claim& claim);
  static std::unique_ptr<Stream> server(std::shared_ptr<const TlsContext> context, net::Fd socket);
  ~TlsStream() override;
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  Io handshake() override;
  uint32_t handshakeEvents() const override;
  bool saidHello() const override;
  secret::Claim claim() const override { return claim_; }
  secret::SessionKeys sessionKeys() const override;
  wire::PayloadCheckKind payloadCheck() const override { return wire::PayloadCheckKind::kNone; }
  Io read(std::span<const iovec> into) override;
  bool hasUnread() const override;
  Io write(std::span<const iovec> from) override;
  bool hasUnflushed() const override;
  Io flush() override;
  void endWrites() override;
  int fd() const override { return socket_.get(); }

  TlsKeyUpdates keyUpdates() const { return keyUpdates_; }
  SSL* ssl() const { return ssl_; }  // for tests

 private:
  enum class Role { kClient, kServer };
  TlsStream(Role role, std::shared_ptr<const TlsContext> context, net::Fd socket,
            const secret::Claim& claim);

  Io fromTls(int result, const char* what) const;
  void flushAnswers(Io& io);

  const Role role_;
  const std::shared_ptr<const TlsContext> context_;
  const net::Fd socket_;
  secret::Claim claim_;
  SSL* ssl_;
  BIO* sealed_;                // bytes that TLS wants sent; belongs to ssl_
  size_t sealedSent_ = 0;      // bytes of it that the kernel has
  uint64_t underThisKey_ = 0;  // bytes
  TlsKeyUpdates keyUpdates_;
};

}  // namespace sluice::fabric
