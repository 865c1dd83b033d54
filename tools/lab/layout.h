// Describes a lab, and derives its names and addresses from the description. Pure values; any
// thread.
//
// A lab is one namespace `sluice-NAME-switch` with a bridge, and one namespace `sluice-NAME-hN` per
// host, joined to the bridge by a veth pair: `eth0` in the host, `hN` at the switch. Nothing of it
// lies in the machine's own namespace, so labs cannot disturb the machine, nor each other, even
// with the same subnet.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <sluice/base/clock.h>
#include <sluice/base/status.h>
#include <sluice/base/units.h>

namespace sluice::lab {

inline constexpr int kMaxHosts = 250;
inline constexpr std::string_view kHostInterface = "eth0";
inline constexpr std::string_view kDefaultName = "lab";

// The rate of a link that is as fast as the machine.
inline constexpr Rate kUnshaped{0};

// An IPv4 network: "10.77.0.0/16".
struct Subnet {
  uint32_t base = 0x0a4d0000;
  int prefix = 16;

  uint32_t hostCapacity() const;  // addresses that a host may have
  std::string toString() const;
  friend bool operator==(const Subnet&, const Subnet&) = default;
};
Result<Subnet> parseSubnet(std::string_view text);

struct Layout {
  std::string name{kDefaultName};
  int hosts = 4;
  int etcd = 0;  // so many of the hosts, the last ones, have an etcd server and no ranks
  Rate rate{1'000'000'000};       // of each host, each direction
  Subnet subnet;                  // host N has the address base + N + 1
  Duration delay{0};              // one way, on top of what the queue takes
  std::string congestionControl;  // of TCP; empty: the machine's default

  Status check() const;  // says what is wrong with it, if anything
  friend bool operator==(const Layout&, const Layout&) = default;
};

// Accepts letters, digits, '-' and '_', at most 32 of them: the name becomes part of file and
// namespace names.
Status checkName(std::string_view name);

std::string switchNamespace(std::string_view lab);
std::string hostNamespace(std::string_view lab, int host);
// True iff `name` is one of the two above for this lab, whatever the host's number.
bool isNamespaceOf(std::string_view lab, std::string_view name);

std::string switchPort(int host);  // "h3": the bridge's side of host 3's link
std::string hostAddress(const Subnet& subnet, int host);
// Returns the address of the host's end. It is fixed, so that nothing has to be learnt.
std::string hardwareAddress(int host);

}  // namespace sluice::lab
