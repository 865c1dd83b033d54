// A socket address, IPv4 or IPv6, with its port. A value; any thread.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <sluice/base/status.h>

namespace sluice::net {

class Address final {
 public:
  Address() = default;  // of no family: isSet() is false

  // "10.0.0.1:29500" or "[fe80::1]:29500"; numbers only, so it never waits.
  static Result<Address> parse(std::string_view text);

  // Every address of `host`, a name or a number. Waits for the resolver if it is a name.
  static Result<std::vector<Address>> resolve(const std::string& host, uint16_t port);

  static Address wildcard(int family,
                          uint16_t port);  // of every interface; AF_INET6 takes IPv4 as well
  static Address loopback(uint16_t port);  // 127.0.0.1

  // Make an address from the kernel's form. An IPv4 address in IPv6 form (::ffff:10.0.0.1) becomes
  // IPv4.
  static Address fromRaw(const sockaddr* raw, socklen_t size);
  static Address localOf(int socket);
  static Address peerOf(int socket);

  bool isSet() const { return size_ > 0; }
  bool isLoopback() const;
  int family() const { return storage_.ss_family; }
  uint16_t port() const;
  std::string host() const;      // "10.0.0.1"
  std::string toString() const;  // as parse() takes it
  Address withPort(uint16_t port) const;

  const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t rawSize() const { return size_; }

  friend bool operator==(const Address& a, const Address& b) {
    return a.toString() == b.toString();
  }

 private:
  sockaddr_storage storage_{};
  socklen_t size_ = 0;
};

// Parses addresses, each as Address::parse() takes it.
Result<std::vector<Address>> parseAddresses(const std::vector<std::string>& texts);

// Returns the name of this host, for people; "?" if the system does not tell it.
std::string hostName();

}  // namespace sluice::net

namespace sluice {
using net::Address;
}  // namespace sluice
