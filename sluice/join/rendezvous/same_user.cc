#include <sluice/join/rendezvous/same_user.h>

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include <sluice/base/log.h>

namespace sluice::rendezvous {
namespace {

constexpr size_t kHexBytes = 2 * secret::kKeyBytes;
constexpr int kWaiting = 128;
constexpr int kKeysPerEvent = 16;
constexpr size_t kMostUsersNamed = 16;

struct UnixName {
  sockaddr_un address{};
  socklen_t bytes = 0;
  const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&address); }
};

// A first byte of zero makes the name abstract: it exists as long as the socket, and in no folder.
UnixName nameFor(const Address& master) {
  const std::string text = fmt::format("sluice {} {}", ::geteuid(), master.toString());
  UnixName name;
  name.address.sun_family = AF_UNIX;
  std::memcpy(name.address.sun_path + 1, text.data(), text.size());
  name.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  return name;
}

// The process at the other end; user -1 if the kernel does not say.
ucred peerOf(const net::Fd& socket) {
  ucred peer{.pid = 0, .uid = static_cast<uid_t>(-1), .gid = static_cast<gid_t>(-1)};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    peer.uid = static_cast<uid_t>(-1);
  return peer;
}

net::Fd unixSocket() {
  return net::Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

constexpr std::string_view kOneUser =
    "run all ranks as one user, or give the job a key (sluice key new -o job.key, "
    "SLUICE_JOB_KEY_FILE)";

Status takenBy(const ucred& holder, const Address& master) {
  return {
      Code::kPermissionDenied,
      fmt::format(
          "pid {} of user {} holds the name under which rank 0 at {} hands its key to user {}; end "
          "that process or choose another MASTER_PORT, {}",
          holder.pid, holder.uid, master.toString(), ::geteuid(), kOneUser)};
}

}  // namespace

Result<std::unique_ptr<KeyServer>> KeyServer::start(net::EpollLoop& loop, const Address& master,
                                                    const secret::JobKey& key) {
  net::Fd socket = unixSocket();
  if (!socket.valid()) return base::fromErrno("cannot open a Unix socket");
  const UnixName name = nameFor(master);
  if (::bind(socket.get(), name.raw(), name.bytes) != 0) {
    const int error = errno;
    const net::Fd other = unixSocket();
    // The name is taken. Another user may hold it to catch the ranks' requests, so the error names
    // that process and its user instead of a mere "in use".
    if (error == EADDRINUSE && ::connect(other.get(), name.raw(), name.bytes) == 0) {
      return takenBy(peerOf(other), master);
    }
    return base::fromErrno(
        fmt::format("cannot name a Unix socket for {}; choose another MASTER_PORT or give "
                    "the job a key",
                    master.toString()),
        error);
  }
  if (::listen(socket.get(), kWaiting) != 0)
    return base::fromErrno("cannot listen on a Unix socket");
  return std::unique_ptr<KeyServer>(new KeyServer(loop, std::move(socket), key));
}

KeyServer::KeyServer(net::EpollLoop& loop, net::Fd socket, secret::JobKey key)
    : loop_(loop), socket_(std::move(socket)), key_(std::move(key)) {
  loop_.watch(socket_.get(), EPOLLIN, [this](uint32_t) { acceptSome(); });
}

KeyServer::~KeyServer() {
  loop_.unwatch(socket_.get());
}

void KeyServer::acceptSome() {
  for (int i = 0; i < kKeysPerEvent; ++i) {
    const net::Fd client(::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!client.valid()) return;
    const ucred peer = peerOf(client);
    // The kernel says who connects, and nobody can lie to it. A foreign user is named in the
    // log once: each of its attempts would fill the log otherwise.
    if (peer.uid != ::geteuid()) {
      if (refused_.size() < kMostUsersNamed && refused_.insert(peer.uid).second) {
        log("rendezvous")
            .warn(
                "refused the key of this job to pid {} of user {}: the job belongs to user {}; {}",
                peer.pid, peer.uid, ::geteuid(), kOneUser);
      }
      continue;
    }
    std::string hex = key_.toHex();
    // A new socket has room for the key. A client that has gone needs no key.
    [[maybe_unused]] const ssize_t sent =
        ::send(client.get(), hex.data(), hex.size(), MSG_NOSIGNAL);
    ::explicit_bzero(hex.data(), hex.size());
  }
}

KeyRequest::~KeyRequest() {
  if (socket_.valid()) loop_.unwatch(socket_.get());
}

Status KeyRequest::start(Got got) {
  SLUICE_RETURN_IF_ERROR(connect());
  got_ = std::move(got);
  loop_.watch(socket_.get(), EPOLLIN, [this](uint32_t) {
    auto key = read();
    loop_.unwatch(socket_.get());
    socket_.reset();
    std::exchange(got_, nullptr)(std::move(key));
  });
  return base::ok();
}

Status KeyRequest::connect() {
  net::Fd socket = unixSocket();
  if (!socket.valid()) return base::fromErrno("cannot open a Unix socket");
  const UnixName name = nameFor(master_);
  if (::connect(socket.get(), name.raw(), name.bytes) != 0) {
    if (errno == ECONNREFUSED) {
      return {Code::kUnavailable, fmt::format("no rank 0 of user {} is there yet", ::geteuid())};
    }
    return base::fromErrno("cannot ask rank 0 for the key of this job");
  }
  // Each end checks the other: a stranger that got the name first would otherwise hand out a
  // key of its own, and with it lead this rank into its own job.
  if (const ucred holder = peerOf(socket); holder.uid != ::geteuid())
    return takenBy(holder, master_);
  socket_ = std::move(socket);
  return base::ok();
}

Result<secret::JobKey> KeyRequest::read() {
  std::array<char, kHexBytes> hex{};
  const ssize_t got = ::recv(socket_.get(), hex.data(), hex.size(), 0);
  if (got < 0) return base::fromErrno("rank 0 did not hand out the key of this job");
  if (got == 0) {
    return Status(Code::kPeerLost,
                  fmt::format("rank 0 gave user {} no key; {}", ::geteuid(), kOneUser));
  }
  auto key = secret::JobKey::parse({hex.data(), static_cast<size_t>(got)});
  ::explicit_bzero(hex.data(), hex.size());
  return key;
}

}  // namespace sluice::rendezvous
