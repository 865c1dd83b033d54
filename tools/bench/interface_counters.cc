#include <tools/bench/interface_counters.h>

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include <sluice/base/check.h>

namespace sluice::bench {
namespace {

Result<net::Fd> openCounter(const std::string& interface, const char* name) {
  const std::string path = "/sys/class/net/" + interface + "/statistics/" + name;
  net::Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return base::fromErrno("cannot open " + path);
  return fd;
}

// A file of sysfs is written anew each time it is read from its beginning.
uint64_t readCounter(const net::Fd& fd) {
  std::array<char, 32> text{};
  const ssize_t got = ::pread(fd.get(), text.data(), text.size() - 1, 0);
  if (got <= 0) return 0;  // the interface is gone
  return std::strtoull(text.data(), nullptr, 10);
}

}  // namespace

Result<InterfaceCounters> InterfaceCounters::open(const std::string& interface) {
  SLUICE_ASSIGN_OR_RETURN(net::Fd sent, openCounter(interface, "tx_bytes"));
  SLUICE_ASSIGN_OR_RETURN(net::Fd received, openCounter(interface, "rx_bytes"));
  return InterfaceCounters(std::move(sent), std::move(received));
}

InterfaceBytes InterfaceCounters::read() const {
  return {.sent = readCounter(sent_), .received = readCounter(received_)};
}

}  // namespace sluice::bench
