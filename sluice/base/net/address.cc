#include <sluice/base/net/address.h>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>

#include <fmt/format.h>

#include <sluice/base/units.h>

namespace sluice::net {
namespace {

Result<std::vector<Address>> lookUp(const std::string& host, uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    return Status(Code::kUnavailable,
                  fmt::format("cannot find the address of '{}': {}", host,
                              error == EAI_SYSTEM ? ::strerror(errno) : ::gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  std::vector<Address> all;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    if (each->ai_family == AF_INET || each->ai_family == AF_INET6)
      all.push_back(Address::fromRaw(each->ai_addr, each->ai_addrlen));
  }
  if (all.empty())
    return Status(Code::kUnavailable,
                  fmt::format("the host '{}' has no IP address; check its name", host));
  return all;
}

template <typename Raw>
Address fromTyped(const Raw& raw) {
  return Address::fromRaw(reinterpret_cast<const sockaddr*>(&raw), sizeof raw);
}

}  // namespace

Result<Address> Address::parse(std::string_view text) {
  const auto refuse = [&] {
    return Status(Code::kInvalidArgument,
                  fmt::format("'{}' is not an address like 10.0.0.1:29500 or [::1]:29500", text));
  };
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos) return refuse();
  std::string_view host = text.substr(0, colon);
  // IPv6 addresses hold colons themselves, so they stand in brackets; a host without brackets
  // must not have a colon. Numbers only: parse() never asks a name server.
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (bracketed != (host.find(':') != std::string_view::npos)) return refuse();
  const auto port = base::parseInteger(text.substr(colon + 1));
  if (!port.isOk() || *port < 0 || *port > 65535 || host.empty()) return refuse();
  const auto found = lookUp(std::string(host), static_cast<uint16_t>(*port), AI_NUMERICHOST);
  if (!found.isOk()) return refuse();
  return found->front();
}

Result<std::vector<Address>> Address::resolve(const std::string& host, uint16_t port) {
  return lookUp(host, port, 0);
}

Address Address::wildcard(int family, uint16_t port) {
  if (family == AF_INET6) {
    sockaddr_in6 raw{};
    raw.sin6_family = AF_INET6;
    raw.sin6_addr = in6addr_any;
    return fromTyped(raw).withPort(port);
  }
  sockaddr_in raw{};
  raw.sin_family = AF_INET;
  raw.sin_addr.s_addr = htonl(INADDR_ANY);
  return fromTyped(raw).withPort(port);
}

Address Address::loopback(uint16_t port) {
  sockaddr_in raw{};
  raw.sin_family = AF_INET;
  raw.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return fromTyped(raw).withPort(port);
}

Address Address::fromRaw(const sockaddr* raw, socklen_t size) {
  Address address;
  if (raw->sa_family == AF_INET6 && size >= sizeof(sockaddr_in6)) {
    sockaddr_in6 six{};
    std::memcpy(&six, raw, sizeof six);
    // A socket for IPv6 shows IPv4 peers in IPv6 form. They become IPv4 here, so that one
    // address has one spelling and two ranks on one network compare equal.
    if (IN6_IS_ADDR_V4MAPPED(&six.sin6_addr)) {
      sockaddr_in four{};
      four.sin_family = AF_INET;
      four.sin_port = six.sin6_port;
      std::memcpy(&four.sin_addr, six.sin6_addr.s6_addr + 12, 4);
      return fromTyped(four);
    }
    std::memcpy(&address.storage_, &six, sizeof six);
    address.size_ = sizeof six;
  } else if (raw->sa_family == AF_INET && size >= sizeof(sockaddr_in)) {
    std::memcpy(&address.storage_, raw, sizeof(sockaddr_in));
    address.size_ = sizeof(sockaddr_in);
  }
  return address;
}

Address Address::localOf(int socket) {
  sockaddr_storage raw{};
  socklen_t size = sizeof raw;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&raw), &size) != 0) return {};
  return fromRaw(reinterpret_cast<const sockaddr*>(&raw), size);
}

Address Address::peerOf(int socket) {
  sockaddr_storage raw{};
  socklen_t size = sizeof raw;
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&raw), &size) != 0) return {};
  return fromRaw(reinterpret_cast<const sockaddr*>(&raw), size);
}

bool Address::isLoopback() const {
  if (family() == AF_INET) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(storage_);
    return ntohl(four.sin_addr.s_addr) >> 24 == 127;
  }
  return family() == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(storage_).sin6_addr);
}

uint16_t Address::port() const {
  // The port lies at the same place in both families.
  return isSet() ? ntohs(reinterpret_cast<const sockaddr_in&>(storage_).sin_port) : uint16_t{0};
}

Address Address::withPort(uint16_t port) const {
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  Address copy = *this;
  reinterpret_cast<sockaddr_in&>(copy.storage_).sin_port = htons(port);
  return copy;
}

std::string Address::host() const {
  if (!isSet()) return "?";
  std::array<char, NI_MAXHOST> text{};
  if (::getnameinfo(raw(), size_, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0)
    return "?";
  return text.data();
}

std::string Address::toString() const {
  if (family() == AF_INET6) return fmt::format("[{}]:{}", host(), port());
  return fmt::format("{}:{}", host(), port());
}

Result<std::vector<Address>> parseAddresses(const std::vector<std::string>& texts) {
  std::vector<Address> addresses;
  for (const auto& text : texts) {
    SLUICE_ASSIGN_OR_RETURN(auto address, Address::parse(text));
    addresses.push_back(std::move(address));
  }
  return addresses;
}

std::string hostName() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

}  // namespace sluice::net
