// TCP's own figures of this process's connections, as the kernel keeps them (TCP_INFO). Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include <sluice/base/net/address.h>

namespace sluice::probe {

struct TcpFigures {
  uint64_t segments = 0;    // with data that were sent, repeated ones included
  uint64_t resent = 0;      // of these, sent again and not found to be needless later
  double roundTrip = 0;     // seconds: TCP's moving average, of the connection that sent most
  std::string control;      // congestion control of that connection
  uint64_t bytesAcked = 0;  // of that connection
};

// Returns the figures of the connections from this process, by the address that they lead to, with
// its port. Connections to one address are added up.
std::map<std::string, TcpFigures> ownConnections();

// Returns the hosts, without a port, with a connection that has worked and on which TCP now sends
// the same segment again and again.
std::set<std::string> hostsWithStuckConnections();

}  // namespace sluice::probe
