#include <sluice/transport/fabric/tcp/stream_maker.h>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include <sluice/base/log.h>
#include <sluice/transport/fabric/tcp/plain_stream.h>
#include <sluice/transport/fabric/tcp/tls_stream.h>
#include <sluice/transport/fabric/unsent_bytes.h>

namespace sluice::fabric {

using secret::Handshake;
using secret::Purpose;

StreamMaker::StreamMaker(const secret::JobKey& key, const TcpOptions& options, size_t peers)
    : key_(key),
      options_(options),
      unsentBytes_(unsentBytesPerConnection(peers, options.shrink)),
      tls_(options.encrypt == Encrypt::kOff || options.encrypt == Encrypt::kIntegrity
               ? nullptr
               : std::make_shared<const TlsContext>(key.derive(Purpose::kTlsPsk))) {}

StreamMaker::~StreamMaker() = default;

// Nothing is negotiated: both ends decide from their options and the other end's address alone.
// So a stranger on the path cannot talk two ranks down to plain bytes, and two ranks with
// different options fail in the handshake instead of speaking past each other.
bool StreamMaker::encrypts(const Address& peer) const {
  switch (options_.encrypt) {
    case Encrypt::kAuto: return !peer.isLoopback();
    case Encrypt::kOn: return true;
    case Encrypt::kIntegrity:
    case Encrypt::kOff: return false;
  }
  return true;
}

wire::PayloadCheckKind StreamMaker::plainCheck() const {
  return options_.encrypt == Encrypt::kIntegrity ? wire::PayloadCheckKind::kTag
                                                 : options_.payloadCheck;
}

void StreamMaker::prepare(int socket) const {
  const int on = 1;
  // Bytes that the kernel holds cannot be overtaken by a more urgent message. TCP_NOTSENT_LOWAT
  // keeps them few without touching the bytes on their way, which the bandwidth needs;
  // TCP_NODELAY sends a small urgent message now instead of waiting for more.
  const auto unsent = static_cast<int>(unsentBytes_);
  // These options only make the connection faster. A broken socket fails at its first byte.
  if (::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0 ||
      ::setsockopt(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent) != 0)
    log("fabric").warn("cannot set the options of a connection: {}", std::strerror(errno));
  const std::string& control = options_.congestionControl;
  if (control.empty()) return;
  // A kernel without this algorithm goes on with its own: slower at worst.
  if (::setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, control.data(),
                   static_cast<socklen_t>(control.size())) != 0)
    log("fabric").debug("this kernel has no congestion control '{}': {}", control,
                        std::strerror(errno));
}

std::unique_ptr<Stream> StreamMaker::client(net::Fd socket, const Address& peer,
                                            const secret::Claim& claim) const {
  prepare(socket.get());
  if (encrypts(peer)) return TlsStream::client(tls_, std::move(socket), claim);
  return std::make_unique<PlainStream>(
      std::move(socket), Handshake::client(key_, Purpose::kFabric, claim), plainCheck());
}

std::unique_ptr<Stream> StreamMaker::server(net::Fd socket, const Address& peer) const {
  prepare(socket.get());
  if (encrypts(peer)) return TlsStream::server(tls_, std::move(socket));
  return std::make_unique<PlainStream>(std::move(socket), Handshake::server(key_, Purpose::kFabric),
                                       plainCheck());
}

}  // namespace sluice::fabric
