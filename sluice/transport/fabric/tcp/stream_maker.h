// Decides which kind of Stream a connection is, the same at both ends, and makes it. Loop thread
// only.
#pragma once

#include <cstddef>
#include <memory>

#include <sluice/base/net/address.h>
#include <sluice/base/net/fd.h>
#include <sluice/secret/job_key.h>
#include <sluice/transport/fabric/tcp/stream.h>
#include <sluice/transport/fabric/tcp/tcp_options.h>

namespace sluice::fabric {

class TlsContext;

class StreamMaker final {
 public:
  StreamMaker(const secret::JobKey& key, const TcpOptions& options, size_t peers);
  ~StreamMaker();

  // `peer` is the address of the other end.
  std::unique_ptr<Stream> client(net::Fd socket, const Address& peer,
                                 const secret::Claim& claim) const;
  std::unique_ptr<Stream> server(net::Fd socket, const Address& peer) const;

  bool encrypts(const Address& peer) const;

 private:
  void prepare(int socket) const;
  wire::PayloadCheckKind plainCheck() const;

  const secret::JobKey key_;
  const TcpOptions options_;
  const size_t unsentBytes_;  // that the kernel may hold of one connection
  const std::shared_ptr<const TlsContext> tls_;
};

}  // namespace sluice::fabric
