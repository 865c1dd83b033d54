// Asks a metrics endpoint, as Prometheus would. Tests only.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>

#include <arpa/inet.h>
#include <netinet/in.h>

namespace sluice::metrics {

// A connected socket to "http://127.0.0.1:PORT/metrics"; -1 if nobody listens there.
inline int connectTo(const std::string& url) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(url.substr(url.rfind(':') + 1))));
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0) return fd;
  ::close(fd);
  return -1;
}

// The body that "http://127.0.0.1:PORT/metrics" answers with; empty if nobody answers.
inline std::string scrape(const std::string& url) {
  const int fd = connectTo(url);
  std::string answer;
  if (fd >= 0) {
    constexpr std::string_view kRequest =
        "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    std::array<char, 4096> piece{};
    if (::send(fd, kRequest.data(), kRequest.size(), MSG_NOSIGNAL) ==
        static_cast<ssize_t>(kRequest.size())) {
      for (ssize_t got = 0; (got = ::recv(fd, piece.data(), piece.size(), 0)) > 0;) {
        answer.append(piece.data(), static_cast<size_t>(got));
      }
    }
  }
  ::close(fd);
  const size_t body = answer.find("\r\n\r\n");
  return body == std::string::npos ? "" : answer.substr(body + 4);
}

}  // namespace sluice::metrics
