#include <sluice/observe/metrics/page_server.h>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <fstream>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::metrics {
namespace {

using namespace std::chrono_literals;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

constexpr std::string_view kRequest = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

std::unique_ptr<PageServer> serve(const std::string& host, const PageLimits& limits = {},
                                  const std::string& page = "the page\n") {
  return PageServer::open(host, 0, "/metrics", [page] { return page; }, limits).value();
}

net::Fd connectTo(const Address& server) {
  net::Fd socket(::socket(server.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval patience{.tv_sec = 20, .tv_usec = 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  EXPECT_EQ(::connect(socket.get(), server.raw(), server.rawSize()), 0);
  return socket;
}

// Returns how many of the bytes could be sent before the server closed its end.
size_t send(const net::Fd& socket, std::string_view text) {
  size_t sent = 0;
  while (sent < text.size()) {
    const ssize_t n = ::send(socket.get(), text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) break;
    sent += static_cast<size_t>(n);
  }
  return sent;
}

// Returns all that comes until the server closes its end.
std::string readAll(const net::Fd& socket) {
  std::string text;
  std::array<char, 4096> piece{};
  for (ssize_t got = 0; (got = ::recv(socket.get(), piece.data(), piece.size(), 0)) > 0;)
    text.append(piece.data(), static_cast<size_t>(got));
  return text;
}

std::string ask(const Address& server, std::string_view request) {
  const net::Fd socket = connectTo(server);
  send(socket, request);
  return readAll(socket);
}

size_t residentBytes() {
  size_t pages = 0;
  size_t resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

TEST(PageServer, IsReachedByIpv4Ipv6AndName) {
  for (const char* host : {"127.0.0.1", "localhost", "::1", "[::1]"}) {
    const auto server = serve(host);
    EXPECT_THAT(ask(server->address(), kRequest), EndsWith("\r\n\r\nthe page\n")) << host;
  }
  EXPECT_THAT(serve("::1")->url(), testing::MatchesRegex(R"(http://\[::1\]:[1-9][0-9]*/metrics)"));
}

TEST(PageServer, APlaceThatCannotBeHadIsNamedWithTheReason) {
  const auto first = serve("::1");
  const uint16_t port = first->address().port();
  const auto open = [](const std::string& host, uint16_t at) {
    return PageServer::open(host, at, "/metrics", [] { return std::string(); }).status().message();
  };
  EXPECT_EQ(open("::1", port),
            fmt::format("cannot listen on [::1]:{}: Address already in use", port));
  EXPECT_THAT(open("192.0.2.1", 0), HasSubstr("192.0.2.1:0: Cannot assign requested address"));
}

TEST(PageServer, OtherRequestsAreRefused) {
  const auto server = serve("127.0.0.1");
  const auto answer = [&](std::string_view request) { return ask(server->address(), request); };
  EXPECT_THAT(answer("GET /../../etc/passwd HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(answer("GET " + std::string(7000, '/') + " HTTP/1.1\r\n\r\n"),
              StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(answer("DELETE /metrics HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(answer("nonsense\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(answer(kRequest), StartsWith("HTTP/1.1 200 "));
}

TEST(PageServer, ClientsThatDripHoldNobodyUp) {
  const auto server = serve("127.0.0.1");
  std::vector<net::Fd> slow;
  for (int i = 0; i < 40; ++i) {
    slow.push_back(connectTo(server->address()));
    send(slow.back(), "GET /metrics HTTP/1.1\r\nX: ");
  }
  const auto begun = std::chrono::steady_clock::now();
  for (int i = 0; i < 10; ++i) {
    for (const net::Fd& one : slow) send(one, "a");
    EXPECT_THAT(ask(server->address(), kRequest), StartsWith("HTTP/1.1 200 "));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 1s);
}

TEST(PageServer, AClientHasALimitOfTimeInAllItDoes) {
  const auto server = serve("127.0.0.1", {.patience = 100ms}, std::string(size_t{64} << 20, 'x'));
  const net::Fd silent = connectTo(server->address());
  EXPECT_EQ(readAll(silent), "");
  const net::Fd drips = connectTo(server->address());
  size_t sent = 0;
  while (sent < 1000 && send(drips, "G") == 1) {
    ++sent;
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_LT(sent, 1000U);
  // One that asks and does not read the answer.
  const net::Fd deaf = connectTo(server->address());
  send(deaf, kRequest);
  std::this_thread::sleep_for(1s);
  EXPECT_LT(readAll(deaf).size(), size_t{64} << 20);
}

TEST(PageServer, OneClientTooManyMakesTheOldestGo) {
  const auto server = serve("127.0.0.1", {.patience = 20s, .clients = 3});
  std::vector<net::Fd> clients;
  for (int i = 0; i < 4; ++i) clients.push_back(connectTo(server->address()));
  EXPECT_EQ(readAll(clients[0]), "");
  for (int i = 1; i < 4; ++i) {
    send(clients[static_cast<size_t>(i)], kRequest);
    EXPECT_THAT(readAll(clients[static_cast<size_t>(i)]), EndsWith("the page\n")) << i;
  }
}

TEST(PageServer, ALongRequestTakesNoMemory) {
  const auto server = serve("127.0.0.1");
  const std::string block(size_t{1} << 20, 'a');
  ask(server->address(), kRequest);
  const size_t before = residentBytes();
  // A header of 8 MB is answered; a body of 4 GB is cut off.
  const net::Fd header = connectTo(server->address());
  send(header, "GET /metrics HTTP/1.1\r\nX: ");
  for (int i = 0; i < 8; ++i) send(header, block);
  EXPECT_THAT(readAll(header), StartsWith("HTTP/1.1 431 "));
  const net::Fd body = connectTo(server->address());
  send(body, "POST /metrics HTTP/1.1\r\nContent-Length: 4000000000\r\n\r\n");
  size_t sent = 0;
  while (sent < 4'000'000'000 && send(body, block) == block.size()) sent += block.size();
  EXPECT_LT(sent, 200'000'000U);
  EXPECT_LT(residentBytes(), before + (size_t{8} << 20));
  EXPECT_THAT(ask(server->address(), kRequest), EndsWith("the page\n"));
}

TEST(PageServer, EndsWhileClientsAreThere) {
  auto server = serve("127.0.0.1", {.patience = 20s});
  const Address address = server->address();
  const net::Fd silent = connectTo(address);
  const net::Fd another = connectTo(address);
  send(another, "GET ");
  ask(address, kRequest);
  server.reset();
  EXPECT_EQ(readAll(silent), "");
  EXPECT_TRUE(
      PageServer::open("127.0.0.1", address.port(), "/", [] { return std::string(); }).isOk());
}

}  // namespace
}  // namespace sluice::metrics
