#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include <sluice/transport/fabric/tcp/stream.h>
#include <sluice/transport/fabric/tcp/stream_maker.h>
#include <sluice/transport/fabric/unsent_bytes.h>

namespace sluice::fabric {
namespace {

std::string controlOf(int socket) {
  std::array<char, 16> name{};
  socklen_t size = name.size();
  EXPECT_EQ(::getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(), &size), 0);
  return name.data();
}

std::string machines() {
  std::string name;
  std::ifstream("/proc/sys/net/ipv4/tcp_congestion_control") >> name;
  return name;
}

size_t unsentLimitOf(int fd) {
  unsigned bytes = 0;
  socklen_t size = sizeof bytes;
  EXPECT_EQ(::getsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, &size), 0);
  return bytes;
}

TEST(StreamMaker, ConnectionsShareLinksInTheChosenWay) {
  const auto key = secret::JobKey::random();
  // reno is in every kernel; an unknown name leaves a connection as it was.
  for (const auto& [chosen, expected] : {std::pair<std::string, std::string>{"reno", "reno"},
                                         {"", machines()},
                                         {"nonesuch", machines()}}) {
    const TcpOptions options{.encrypt = Encrypt::kOff, .congestionControl = chosen};
    const StreamMaker maker(key, options, /*peers=*/15);
    net::Fd socket(::socket(AF_INET, SOCK_STREAM, 0));
    const int fd = socket.get();
    const auto stream = maker.server(std::move(socket), Address());
    EXPECT_EQ(controlOf(fd), expected) << chosen;
    EXPECT_EQ(unsentLimitOf(fd), unsentBytesPerConnection(15));
  }
}

TEST(CloseWithReset, IsSeenThoughAnotherProcessHasADescriptorToo) {
  const net::Fd listener(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  socklen_t size = sizeof address;
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* any = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(::bind(listener.get(), any, size), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  ASSERT_EQ(::getsockname(listener.get(), any, &size), 0);
  net::Fd here(::socket(AF_INET, SOCK_STREAM, 0));
  ASSERT_EQ(::connect(here.get(), any, size), 0);
  const net::Fd there(::accept(listener.get(), nullptr, nullptr));
  const net::Fd inAChild(::dup(here.get()));
  const timeval limit{.tv_sec = 10, .tv_usec = 0};  // without the reset nothing would ever come
  ASSERT_EQ(::setsockopt(there.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);

  closeWithReset(here.get());
  here.reset();
  char byte = 0;
  EXPECT_EQ(::recv(there.get(), &byte, 1, 0), -1);
  EXPECT_EQ(errno, ECONNRESET);
}

}  // namespace
}  // namespace sluice::fabric
