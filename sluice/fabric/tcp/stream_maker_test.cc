#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include <sluice/fabric/tcp/stream.h>
#include <sluice/fabric/tcp/stream_maker.h>

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

TEST(StreamMaker, ConnectionsShareLinksInTheChosenWay) {
  const auto key = secret::JobKey::random();
  // reno is in every kernel; a name that is in none leaves a connection as it was.
  for (const auto& [chosen, expected] :
       {std::pair<std::string, std::string>{"reno", "reno"}, {"", machines()}, {"nonesuch", machines()}}) {
    const StreamMaker maker(key, {.encrypt = Encrypt::kOff, .congestionControl = chosen});
    base::Fd socket(::socket(AF_INET, SOCK_STREAM, 0));
    const int fd = socket.get();
    const auto stream = maker.server(std::move(socket), Address());
    EXPECT_EQ(controlOf(fd), expected) << chosen;
  }
}

}  // namespace
}  // namespace sluice::fabric
