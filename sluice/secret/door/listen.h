// Opens a listening socket. Any thread.
#pragma once

#include <sluice/base/net/address.h>
#include <sluice/base/net/fd.h>
#include <sluice/base/status.h>

namespace sluice::door {

// `at` may have port 0: the system then chooses a port. A socket for all IPv6 addresses takes IPv4
// as well. The kernel hands out a connection only when its first bytes have come, or after about a
// second without any.
Result<net::Fd> listenOn(const Address& at);

// Limits the number of connections that wait in the kernel to be accepted.
void limitWaiting(const net::Fd& listener, int connections);

}  // namespace sluice::door
