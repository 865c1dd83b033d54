// The server's end of the handshake (secret/handshake.h) on a socket. One owner; not shared.
#pragma once

#include <array>
#include <span>

#include <sluice/base/net/fd.h>
#include <sluice/secret/door/candidate.h>
#include <sluice/secret/handshake.h>

namespace sluice::door {

class Greeting final : public Applicant {
 public:
  Greeting(net::Fd socket, secret::Handshake handshake)
      : socket_(std::move(socket)), handshake_(std::move(handshake)) {}

  Progress advance() override;
  uint32_t events() const override;
  bool saidHello() const override { return handshake_.heardHello(); }
  int fd() const override { return socket_.get(); }

  // REQUIRES: advance() has returned kProved.
  net::Fd takeSocket() { return std::move(socket_); }
  const secret::Handshake& handshake() const { return handshake_; }

 private:
  net::Fd socket_;
  secret::Handshake handshake_;
  std::span<const std::byte> toSend_;
  std::array<std::byte, secret::Handshake::kLargestMessageBytes> received_{};
  size_t receivedBytes_ = 0;
};

}  // namespace sluice::door
