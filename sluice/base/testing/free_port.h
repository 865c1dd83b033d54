// A port on loopback that nobody listens at, for the ranks of a test.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <string>

namespace sluice::base {

// The port lies below those that the kernel gives to programs that ask for any port.
inline std::string freePort() {
  static auto next = static_cast<uint16_t>(20'000 + ::getpid() * 7 % 12'000);
  bool isFree = false;
  while (!isFree) {
    const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(++next);
    isFree = ::bind(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    ::close(descriptor);
  }
  return std::to_string(next);
}

}  // namespace sluice::base
