#include <sluice/observe/metrics/page_server.h>

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <future>
#include <iterator>
#include <list>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include <sluice/base/check.h>
#include <sluice/observe/metrics/http_request.h>

namespace sluice::metrics {
namespace {

constexpr int kMostWaiting = 64;      // in the kernel
constexpr int kAcceptsPerEvent = 16;  // then the clients that are in have their turn
constexpr size_t kPieceBytes = size_t{64} << 10;
constexpr size_t kMostUnread = size_t{16} << 20;
constexpr auto kRest = std::chrono::milliseconds(50);

Result<net::Fd> listenOn(const Address& at) {
  net::Fd socket(::socket(at.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return base::fromErrno("cannot open a socket");
  const auto set = [&](int level, int name, int value) {
    // The result is ignored: the port works without any of these options.
    [[maybe_unused]] const int result =
        ::setsockopt(socket.get(), level, name, &value, sizeof value);
  };
  set(SOL_SOCKET, SO_REUSEADDR, 1);
  if (at.family() == AF_INET6) set(IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (::bind(socket.get(), at.raw(), at.rawSize()) != 0 ||
      ::listen(socket.get(), kMostWaiting) != 0)
    return base::fromErrno(fmt::format("cannot listen on {}", at.toString()));
  return socket;
}

// Numbers of IPv6 are often written with the brackets that they have in an address with a port.
std::string withoutBrackets(const std::string& host) {
  if (host.size() < 2 || !host.starts_with('[') || !host.ends_with(']')) return host;
  return host.substr(1, host.size() - 2);
}

}  // namespace

// The part that the loop owns.
class PageServer::Room final {
 public:
  Room(net::EpollLoop& loop, net::Fd listener, std::string path, MakePage make,
       const PageLimits& limits)
      : loop_(loop),
        listener_(std::move(listener)),
        path_(std::move(path)),
        make_(std::move(make)),
        limits_(limits) {}

  void open() {
    loop_.watch(listener_.get(), EPOLLIN, [this](uint32_t) { acceptSome(); });
  }

  void close() {
    if (resting_) {
      loop_.cancel(*std::exchange(resting_, std::nullopt));
    } else {
      loop_.unwatch(listener_.get());
    }
    while (!clients_.empty()) release(clients_.begin());
    listener_.reset();
  }

 private:
  enum class State { kAsks, kIsAnswered, kLeaves };
  struct Client {
    net::Fd socket;
    State state = State::kAsks;
    std::string received{};
    std::string answer{};
    size_t sent = 0;
    std::optional<TimerId> deadline{};
    size_t unread = 0;  // bytes that were thrown away
  };
  using Clients = std::list<Client>;  // oldest first

  void acceptSome() {
    for (int i = 0; i < kAcceptsPerEvent; ++i) {
      net::Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (socket.valid()) {
        admit(std::move(socket));
      } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        // epoll would report the same connection again and again.
        return rest();
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        return;
      }
      // Any other error concerns one connection that ended before it was accepted.
    }
  }

  void rest() {
    loop_.unwatch(listener_.get());
    resting_ = loop_.after(kRest, [this] {
      resting_.reset();
      open();
    });
  }

  void admit(net::Fd socket) {
    if (clients_.size() >= limits_.clients) release(clients_.begin());
    clients_.push_back({.socket = std::move(socket)});
    const auto client = std::prev(clients_.end());
    wait(client, State::kAsks, EPOLLIN);
  }

  // Waits for a client, but not for ever.
  void wait(Clients::iterator client, State state, uint32_t events) {
    if (client->state != state || !client->deadline) {
      if (client->deadline) loop_.cancel(*client->deadline);
      client->state = state;
      client->deadline = loop_.after(limits_.patience, [this, client] { release(client); });
    }
    loop_.watch(client->socket.get(), events, [this, client](uint32_t) { advance(client); });
  }

  void advance(Clients::iterator client) {
    switch (client->state) {
      case State::kAsks: return hear(client);
      case State::kIsAnswered: return say(client);
      case State::kLeaves: return watchItLeave(client);
    }
  }

  void hear(Clients::iterator client) {
    std::array<char, kLargestRequestBytes> piece;  // NOLINT: filled by recv()
    const ssize_t got = ::recv(client->socket.get(), piece.data(), piece.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) return release(client);
    client->received.append(piece.data(), static_cast<size_t>(got));
    const Asked asked = readRequest(client->received, path_);
    if (asked == Asked::kMore) return;
    const bool needsPage = asked == Asked::kPage || asked == Asked::kHead;
    client->answer = answerTo(asked, path_, needsPage ? make_() : std::string());
    client->received = {};
    say(client);
  }

  void say(Clients::iterator client) {
    while (client->sent < client->answer.size()) {
      const ssize_t sent =
          ::send(client->socket.get(), client->answer.data() + client->sent,
                 std::min(kPieceBytes, client->answer.size() - client->sent), MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0 && errno == EAGAIN) return wait(client, State::kIsAnswered, EPOLLOUT);
      if (sent <= 0) return release(client);
      client->sent += static_cast<size_t>(sent);
    }
    client->answer = {};
    // A socket that is closed while bytes of the client are unread makes the client lose the answer.
    // So its bytes are read, and thrown away, until it closes or has had its part.
    ::shutdown(client->socket.get(), SHUT_WR);
    wait(client, State::kLeaves, EPOLLIN);
  }

  void watchItLeave(Clients::iterator client) {
    std::array<char, kLargestRequestBytes> piece;  // NOLINT: filled by recv()
    const ssize_t got = ::recv(client->socket.get(), piece.data(), piece.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    client->unread += static_cast<size_t>(std::max<ssize_t>(got, 0));
    if (got <= 0 || client->unread > kMostUnread) release(client);
  }

  void release(Clients::iterator client) {
    if (client->deadline) loop_.cancel(*client->deadline);
    loop_.unwatch(client->socket.get());
    clients_.erase(client);
  }

  net::EpollLoop& loop_;
  net::Fd listener_;
  const std::string path_;
  const MakePage make_;
  const PageLimits limits_;
  Clients clients_;
  std::optional<TimerId> resting_;
};

Result<std::unique_ptr<PageServer>> PageServer::open(const std::string& host, uint16_t port,
                                                     std::string path, MakePage make,
                                                     const PageLimits& limits) {
  SLUICE_ASSIGN_OR_RETURN(auto addresses, Address::resolve(withoutBrackets(host), port));
  std::ranges::stable_partition(addresses,
                                [](const Address& one) { return one.family() == AF_INET; });
  SLUICE_CHECK(!addresses.empty());
  SLUICE_ASSIGN_OR_RETURN(auto listener, listenOn(addresses.front()));
  std::unique_ptr<PageServer> server(
      new PageServer(std::move(listener), std::move(path), std::move(make), limits));
  SLUICE_RETURN_IF_ERROR(server->thread_.status());
  return server;
}

PageServer::PageServer(net::Fd listener, std::string path, MakePage make, const PageLimits& limits)
    : path_(path),
      address_(Address::localOf(listener.get())),
      thread_("sluice-metrics"),
      room_(std::make_shared<Room>(thread_.loop(), std::move(listener), std::move(path),
                                   std::move(make), limits)) {
  thread_.loop().post([room = room_] { room->open(); });
}

PageServer::~PageServer() {
  // Waits until the port is closed. A loop that has ended destroys the task without running it,
  // which ends the wait as well.
  auto closed = std::make_shared<std::promise<void>>();
  const auto wait = closed->get_future();
  thread_.loop().post([room = std::exchange(room_, nullptr), closed = std::move(closed)]() mutable {
    room->close();
    room.reset();
    closed->set_value();
  });
  wait.wait();
}

std::string PageServer::url() const {
  return fmt::format("http://{}{}", address_.toString(), path_);
}

}  // namespace sluice::metrics
