#include <sluice/probe/own_sockets.h>

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
  if (reaches(size, offsetof(tcp_info, tcpi_segs_in))) figures.segments += info.tcpi_segs_out;
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

}  // namespace

std::map<std::string, TcpFigures> ownConnections() {
  std::map<std::string, TcpFigures> all;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), &::closedir);
  if (folder == nullptr) return all;
  while (const dirent* entry = ::readdir(folder.get())) {
    char* end = nullptr;
    const auto fd = std::strtol(entry->d_name, &end, 10);
    // An fd that is closed meanwhile is asked in vain; nothing is changed by asking.
    if (end != entry->d_name) addConnection(static_cast<int>(fd), all);
  }
  return all;
}

}  // namespace sluice::probe
