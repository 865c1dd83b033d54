// Chooses the address of this host that the other ranks use: the one on the way to rank 0, unless
// one is pinned.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <sluice/base/net/address.h>
#include <sluice/base/status.h>

namespace sluice::rendezvous {

struct Interface {
  std::string name;
  Address address;  // port 0
};

Result<std::vector<Interface>> listInterfaces();

// Returns the interface that `pin` names, by name ("eth0") or by network ("10.0.0.0/24"). With an
// empty pin, returns the interface from which the kernel would send to `master`. Among several
// addresses one of the master's family is taken. The error lists the interfaces that exist.
Result<Interface> chooseInterface(const std::vector<Interface>& interfaces, const Address& master,
                                  std::string_view pin);

}  // namespace sluice::rendezvous
