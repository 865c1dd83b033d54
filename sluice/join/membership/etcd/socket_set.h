// The sockets that libcurl wants to be told about, in an epoll of their own inside the loop's. The
// loop must be told before a descriptor is closed, and libcurl 7.88 closes one that is not connected
// yet without a word. Belongs to the loop.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include <sluice/base/net/epoll_loop.h>
#include <sluice/base/net/fd.h>

namespace sluice::membership {

class SocketSet final {
 public:
  using OnReady = std::function<void(int socket, uint32_t events)>;

  // `onReady` runs on the loop. It may change the set, but not destroy it.
  SocketSet(net::EpollLoop& loop, OnReady onReady);
  ~SocketSet();
  SocketSet(const SocketSet&) = delete;
  SocketSet& operator=(const SocketSet&) = delete;

  void add(int socket, uint32_t events);  // a second call changes the events
  void remove(int socket);                // may be closed already, or unknown

 private:
  void open();
  void close();
  void handOut();

  net::EpollLoop& loop_;
  const OnReady onReady_;
  net::Fd epoll_;
  std::map<int, uint32_t> sockets_;
};

}  // namespace sluice::membership
