#include <tools/probe/own_sockets.h>

#include <dirent.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <memory>

namespace sluice::probe {
namespace {

// Returns true iff the kernel has filled in the field that ends at `end`.
bool reaches(socklen_t size, size_t end) {
  return size >= end;
}

void addConnection(int fd, std::map<std::string, TcpFigures>& all) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return;
  const Address peer = Address::peerOf(fd);
  if (!peer.isSet()) return;  // it listens, or is gone
  TcpFigures& figures = all[peer.toString()];
  if (reaches(size, offsetof(tcp_info, tcpi_data_segs_out) + sizeof(info.tcpi_data_segs_out)))
    figures.segments += info.tcpi_data_segs_out;
  // A segment that was only late is sent again, too, and the other end says so (DSACK).
  uint64_t needless = 0;
  if (reaches(size, offsetof(tcp_info, tcpi_dsack_dups) + sizeof(info.tcpi_dsack_dups)))
    needless = info.tcpi_dsack_dups;
  if (info.tcpi_total_retrans > needless) figures.resent += info.tcpi_total_retrans - needless;
  if (!figures.control.empty() && info.tcpi_bytes_acked < figures.bytesAcked) return;
  figures.bytesAcked = info.tcpi_bytes_acked;
  figures.roundTrip = info.tcpi_rtt * 1e-6;
  std::array<char, 16> name{};
  socklen_t length = name.size() - 1;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), &length) == 0)
    figures.control = name.data();
}

// Calls `see` with every descriptor of this process. One that is closed meanwhile is asked in vain;
// nothing is changed by asking.
template <typename See>
void forEachDescriptor(const See& see) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), &::closedir);
  if (folder == nullptr) return;
  while (const dirent* entry = ::readdir(folder.get())) {
    char* end = nullptr;
    const auto fd = std::strtol(entry->d_name, &end, 10);
    if (end != entry->d_name) see(static_cast<int>(fd));
  }
}

}  // namespace

std::map<std::string, TcpFigures> ownConnections() {
  std::map<std::string, TcpFigures> all;
  forEachDescriptor([&all](int fd) { addConnection(fd, all); });
  return all;
}

std::set<std::string> hostsWithStuckConnections() {
  constexpr int kTimesAgain = 2;  // after about a second
  std::set<std::string> hosts;
  forEachDescriptor([&hosts](int fd) {
    tcp_info info{};
    socklen_t size = sizeof(info);
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return;
    const bool hasUnsent = info.tcpi_unacked > 0 || info.tcpi_notsent_bytes > 0;
    const bool isStuck = info.tcpi_backoff >= kTimesAgain && hasUnsent && info.tcpi_bytes_acked > 1;
    if (isStuck) hosts.insert(Address::peerOf(fd).host());
  });
  return hosts;
}

}  // namespace sluice::probe
