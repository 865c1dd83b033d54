// The bytes that have passed a network interface of this host, headers and repetitions included, as
// the kernel counts them. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include <sluice/base/net/fd.h>
#include <sluice/base/status.h>

namespace sluice::bench {

struct InterfaceBytes {
  uint64_t sent = 0;
  uint64_t received = 0;
};

class InterfaceCounters final {
 public:
  static Result<InterfaceCounters> open(const std::string& interface);

  InterfaceBytes read() const;

 private:
  InterfaceCounters(net::Fd sent, net::Fd received)
      : sent_(std::move(sent)), received_(std::move(received)) {}

  net::Fd sent_;
  net::Fd received_;
};

}  // namespace sluice::bench
