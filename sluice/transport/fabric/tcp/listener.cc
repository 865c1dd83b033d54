#include <sluice/transport/fabric/tcp/listener.h>

#include <sluice/secret/door/listen.h>

namespace sluice::fabric {

Result<TcpListener> TcpListener::open(const Address& at) {
  SLUICE_ASSIGN_OR_RETURN(net::Fd socket, door::listenOn(at));
  Address address = Address::localOf(socket.get());
  return TcpListener(std::move(socket), std::move(address));
}

}  // namespace sluice::fabric
