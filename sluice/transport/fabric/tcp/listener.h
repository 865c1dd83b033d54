// The listening socket of a rank, opened before its fabric so that the port can be told to the
// others.
#pragma once

#include <sluice/base/net/address.h>
#include <sluice/base/net/fd.h>
#include <sluice/base/status.h>

namespace sluice::fabric {

class TcpListener final {
 public:
  // `at` may have port 0: the system chooses one.
  static Result<TcpListener> open(const Address& at);

  const Address& address() const { return address_; }  // with the real port
  net::Fd takeSocket() && { return std::move(socket_); }

 private:
  TcpListener(net::Fd socket, Address address)
      : socket_(std::move(socket)), address_(std::move(address)) {}

  net::Fd socket_;
  Address address_;
};

}  // namespace sluice::fabric
