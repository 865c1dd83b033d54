#include <sluice/join/membership/etcd/socket_set.h>

#include <sys/epoll.h>

#include <array>
#include <cerrno>
#include <utility>

namespace sluice::membership {
namespace {

bool control(int epoll, int operation, int socket, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = socket;
  return ::epoll_ctl(epoll, operation, socket, &event) == 0;
}

}  // namespace

SocketSet::SocketSet(net::EpollLoop& loop, OnReady onReady)
    : loop_(loop), onReady_(std::move(onReady)) {
  open();
}

SocketSet::~SocketSet() {
  close();
}

void SocketSet::open() {
  // libcurl's sockets get an epoll instance of their own, which the loop watches as one
  // descriptor. libcurl opens and closes sockets without saying so in time, and a stale
  // descriptor in here cannot disturb those of the loop.
  epoll_ = net::Fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.valid()) return;  // requests then end at their time limits
  loop_.watch(epoll_.get(), EPOLLIN, [this](uint32_t) { handOut(); });
}

void SocketSet::close() {
  if (epoll_.valid()) loop_.unwatch(epoll_.get());
  epoll_.reset();
}

void SocketSet::add(int socket, uint32_t events) {
  sockets_[socket] = events;
  // A former socket of this number may have been closed since.
  if (!control(epoll_.get(), EPOLL_CTL_MOD, socket, events))
    (void)control(epoll_.get(), EPOLL_CTL_ADD, socket, events);
}

void SocketSet::remove(int socket) {
  if (sockets_.erase(socket) == 0) return;
  if (control(epoll_.get(), EPOLL_CTL_DEL, socket, 0)) return;
  // It is closed here, but a forked child may hold it open, and epoll would report it for ever.
  close();
  open();
  for (const auto& [other, events] : sockets_)
    (void)control(epoll_.get(), EPOLL_CTL_ADD, other, events);
}

void SocketSet::handOut() {
  std::array<epoll_event, 16> ready{};
  const int count = ::epoll_wait(epoll_.get(), ready.data(), ready.size(), 0);
  for (int i = 0; i < count; ++i) {
    // A callback before this one may have closed the socket that the next event is about.
    if (sockets_.contains(ready[i].data.fd)) onReady_(ready[i].data.fd, ready[i].events);
  }
}

}  // namespace sluice::membership
