// Serves one page over HTTP/1.1 from a thread of its own. Whoever reaches the port can read the page
// and nothing else: a client has a limit of bytes and of time, all clients together have one of
// number, and one that is slow holds nobody else up. Any thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include <sluice/base/net/address.h>
#include <sluice/base/net/epoll_loop.h>
#include <sluice/base/net/fd.h>
#include <sluice/base/status.h>

namespace sluice::metrics {

struct PageLimits {
  // From a client's connection to its whole request, from there to the end of the answer, and from
  // there until it has closed its end.
  Duration patience = std::chrono::seconds(2);
  size_t clients = 64;  // one more makes the oldest go
};

class PageServer final {
 public:
  // Runs on the server's thread for every request of the page.
  using MakePage = std::function<std::string()>;

  // `host` is a name or a number, of IPv4 or IPv6; of a name's addresses one of IPv4 is preferred.
  // Port 0 stands for any free port.
  static Result<std::unique_ptr<PageServer>> open(const std::string& host, uint16_t port,
                                                  std::string path, MakePage make,
                                                  const PageLimits& limits = {});
  // The page is not being made any more when this returns.
  ~PageServer();
  PageServer(const PageServer&) = delete;
  PageServer& operator=(const PageServer&) = delete;

  const Address& address() const { return address_; }
  std::string url() const;  // "http://[::1]:9400/metrics"

 private:
  class Room;
  PageServer(net::Fd listener, std::string path, MakePage make, const PageLimits& limits);

  const std::string path_;
  const Address address_;
  net::LoopThread thread_;
  std::shared_ptr<Room> room_;  // belongs to the thread's loop
};

}  // namespace sluice::metrics
