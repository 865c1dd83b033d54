#include <sluice/secret/door/listen.h>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <fmt/format.h>

namespace sluice::door {
namespace {

constexpr int kMostWaiting = 4096;

}  // namespace

Result<net::Fd> listenOn(const Address& at) {
  net::Fd socket(::socket(at.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return base::fromErrno("cannot open a socket");
  const auto set = [&](int level, int name, int value) {
    // The result is ignored: the port works without any of these options.
    [[maybe_unused]] const int result =
        ::setsockopt(socket.get(), level, name, &value, sizeof value);
  };
  set(SOL_SOCKET, SO_REUSEADDR, 1);
  if (at.family() == AF_INET6) set(IPPROTO_IPV6, IPV6_V6ONLY, 0);
  // A connection that sends nothing is held by the kernel for about a second before it takes a
  // place here. An honest client speaks first, so it loses no time.
  set(IPPROTO_TCP, TCP_DEFER_ACCEPT, 1);
  if (::bind(socket.get(), at.raw(), at.rawSize()) != 0 ||
      ::listen(socket.get(), kMostWaiting) != 0) {
    return base::fromErrno(fmt::format("cannot listen on {}", at.toString()));
  }
  return socket;
}

void limitWaiting(const net::Fd& listener, int connections) {
  [[maybe_unused]] const int result = ::listen(listener.get(), connections);
}

}  // namespace sluice::door
