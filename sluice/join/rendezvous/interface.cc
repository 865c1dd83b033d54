#include <sluice/join/rendezvous/interface.h>

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <cstring>
#include <memory>
#include <optional>
#include <span>

#include <fmt/format.h>

#include <sluice/base/net/fd.h>
#include <sluice/base/units.h>

namespace sluice::rendezvous {
namespace {

std::span<const uint8_t> bitsOf(const Address& address) {
  if (address.family() == AF_INET) {
    return {reinterpret_cast<const uint8_t*>(
                &reinterpret_cast<const sockaddr_in*>(address.raw())->sin_addr),
            4};
  }
  return {reinterpret_cast<const uint8_t*>(
              &reinterpret_cast<const sockaddr_in6*>(address.raw())->sin6_addr),
          16};
}

bool sharePrefix(const Address& a, const Address& b, size_t prefixBits) {
  if (a.family() != b.family()) return false;
  const auto left = bitsOf(a);
  const auto right = bitsOf(b);
  // A prefix need not end where a byte does, so bits are compared.
  for (size_t bit = 0; bit < prefixBits; ++bit) {
    if (((left[bit / 8] ^ right[bit / 8]) >> (7 - bit % 8) & 1) != 0) return false;
  }
  return true;
}

struct Network {
  Address address;
  size_t prefixBits;
};

std::optional<Network> parseNetwork(std::string_view text) {
  const auto slash = text.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const std::string host(text.substr(0, slash));
  // Address::parse() wants a port, and brackets around an address of IPv6.
  const bool isSix = host.find(':') != std::string::npos;
  const auto address = Address::parse(fmt::format("{}:0", isSix ? "[" + host + "]" : host));
  const auto bits = base::parseInteger(text.substr(slash + 1));
  if (!address.isOk() || !bits.isOk() || *bits < 0) return std::nullopt;
  if (static_cast<size_t>(*bits) > 8 * bitsOf(*address).size()) return std::nullopt;
  return Network{*address, static_cast<size_t>(*bits)};
}

std::string listed(const std::vector<Interface>& interfaces) {
  std::string text;
  for (const auto& each : interfaces) {
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", each.name, each.address.host());
  }
  return text;
}

// Connecting a datagram socket sends nothing but makes the kernel choose the way.
Result<Address> routeTo(const Address& master) {
  const net::Fd socket(::socket(master.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.valid() || ::connect(socket.get(), master.raw(), master.rawSize()) != 0) {
    return base::fromErrno(
        fmt::format("this host has no route to rank 0 at {}", master.toString()));
  }
  return Address::localOf(socket.get()).withPort(0);
}

}  // namespace

Result<std::vector<Interface>> listInterfaces() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return base::fromErrno("cannot list the network interfaces");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(first, &::freeifaddrs);
  std::vector<Interface> all;
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_UP) == 0) continue;
    const int family = each->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    all.push_back({each->ifa_name, Address::fromRaw(each->ifa_addr, size)});
  }
  return all;
}

Result<Interface> chooseInterface(const std::vector<Interface>& interfaces, const Address& master,
                                  std::string_view pin) {
  if (pin.empty()) {
    // Without a pin it is the interface over which the kernel reaches rank 0. All ranks that do
    // so are on networks that know each other, whatever other interfaces their hosts have.
    SLUICE_ASSIGN_OR_RETURN(const Address local, routeTo(master));
    for (const auto& each : interfaces) {
      if (each.address == local) return each;
    }
    return Interface{"?", local};  // all of 127.0.0.0/8 is local though only 127.0.0.1 is listed
  }
  const auto network = parseNetwork(pin);
  const Interface* found = nullptr;
  for (const auto& each : interfaces) {
    const bool matches = network ? sharePrefix(each.address, network->address, network->prefixBits)
                                 : each.name == pin;
    if (!matches) continue;
    // An interface may have several addresses that fit. One of rank 0's own family is
    // preferred, as the other family may have no way to it.
    const bool isBetter = found == nullptr || (each.address.family() == master.family() &&
                                               found->address.family() != master.family());
    if (isBetter) found = &each;
  }
  if (found != nullptr) return *found;
  return Status(
      Code::kInvalidArgument,
      fmt::format("no network interface is named '{}' or lies in that network; this host has: {}",
                  pin, listed(interfaces)));
}

}  // namespace sluice::rendezvous
