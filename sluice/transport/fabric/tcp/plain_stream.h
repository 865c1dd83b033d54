// A Stream without encryption: the mutual challenge-response of secret/handshake.h, then bare
// bytes. Anybody on the path can read its bytes; headers are sealed, and payloads checked, above
// it.
#pragma once

#include <array>

#include <sluice/base/net/fd.h>
#include <sluice/transport/fabric/tcp/stream.h>

namespace sluice::fabric {

class PlainStream final : public Stream {
 public:
  PlainStream(net::Fd socket, secret::Handshake handshake, wire::PayloadCheckKind payloadCheck);

  Io handshake() override;
  uint32_t handshakeEvents() const override;
  bool saidHello() const override { return handshake_.heardHello(); }
  secret::Claim claim() const override { return handshake_.claim(); }
  secret::SessionKeys sessionKeys() const override { return handshake_.sessionKeys(); }
  wire::PayloadCheckKind payloadCheck() const override { return payloadCheck_; }
  Io read(std::span<const iovec> into) override;
  bool hasUnread() const override { return false; }
  Io write(std::span<const iovec> from) override;
  bool hasUnflushed() const override { return false; }
  Io flush() override { return Io::moved(0); }
  void endWrites() override;
  int fd() const override { return socket_.get(); }

 private:
  const net::Fd socket_;
  secret::Handshake handshake_;
  const wire::PayloadCheckKind payloadCheck_;
  std::span<const std::byte> toSend_;
  std::array<std::byte, secret::Handshake::kLargestMessageBytes> received_{};
  size_t receivedBytes_ = 0;
};

}  // namespace sluice::fabric
