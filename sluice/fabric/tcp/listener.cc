#include <sluice/fabric/tcp/listener.h>

#include <sys/socket.h>

#include <fmt/format.h>

namespace sluice::fabric {

Result<TcpListener> TcpListener::open(const Address& at) {
  const auto failed = [&] { return base::fromErrno(fmt::format("cannot listen on {}", at.toString())); };
  base::Fd socket(::socket(at.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return failed();
  const int on = 1;
  if (::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0) return failed();
  if (::bind(socket.get(), at.raw(), at.rawSize()) != 0) return failed();
  if (::listen(socket.get(), SOMAXCONN) != 0) return failed();
  Address address = Address::localOf(socket.get());
  return TcpListener(std::move(socket), std::move(address));
}

}  // namespace sluice::fabric
