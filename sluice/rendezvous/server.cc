#include <sluice/rendezvous/server.h>

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>

#include <fmt/format.h>

#include <sluice/base/log.h>
#include <sluice/rendezvous/claim.h>
#include <sluice/rendezvous/rank_list.h>

namespace sluice::rendezvous {
namespace {

using namespace std::chrono_literals;

constexpr int kBacklog = 4096;
constexpr int kAcceptAtOnce = 64;  // then the peers that are here already have their turn
constexpr Duration kTick = 1s;
constexpr Duration kOneLaunch = 1s;  // the ranks of one launch are usually started within this time

bool isEarly(Duration earlier) {
  return earlier > kOneLaunch;
}

Result<base::Fd> listenOn(const Address& address) {
  base::Fd socket(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return base::fromErrno("cannot open a socket");
  const int on = 1;
  const int off = 0;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address.family() == AF_INET6) ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (::bind(socket.get(), address.raw(), address.rawSize()) != 0 || ::listen(socket.get(), kBacklog) != 0) {
    return base::fromErrno(
        fmt::format("rank 0 cannot listen on {}; choose another MASTER_PORT", address.toString()));
  }
  return socket;
}

}  // namespace

uint64_t raiseFileLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) ::getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

Result<std::unique_ptr<Server>> Server::start(base::EpollLoop& loop, ServerOptions options) {
  SLUICE_ASSIGN_OR_RETURN(auto listener, listenOn(options.listen));
  const uint64_t files = raiseFileLimit();
  constexpr uint64_t kOtherFiles = 64;
  if (files < options.worldSize + kOtherFiles) {
    return Status(Code::kUnavailable,
                  fmt::format("rank 0 may open {} files but {} ranks connect to it; run: ulimit -Hn {}",
                              files, options.worldSize, options.worldSize + 2 * kOtherFiles));
  }
  const uint64_t spare = files - options.worldSize - kOtherFiles / 2;
  options.unprovenCap = std::min<size_t>(options.unprovenCap, std::max<uint64_t>(spare, kOtherFiles / 2));
  return std::unique_ptr<Server>(new Server(loop, std::move(options), std::move(listener)));
}

Server::Server(base::EpollLoop& loop, ServerOptions options, base::Fd listener)
    : loop_(loop),
      options_(std::move(options)),
      agreementHash_(options_.agreement.hash()),
      listener_(std::move(listener)),
      port_(Address::localOf(listener_.get()).port()),
      unprovenCap_(options_.unprovenCap),
      created_(loop.now()),
      begun_(options_.begun == TimePoint{} ? created_ : options_.begun),
      table_(loop, options_.worldSize),
      toldAt_(loop.now()) {
  listen();
  keepTicking();
}

void Server::listen() {
  loop_.watch(listener_.get(), EPOLLIN, [this](uint32_t) { acceptSome(); });
}

Server::~Server() {
  loop_.unwatch(listener_.get());
  if (ticker_) loop_.cancel(*ticker_);
  if (acceptTimer_) loop_.cancel(*acceptTimer_);
  if (allLeftTimer_) loop_.cancel(*allLeftTimer_);
  for (const auto& peer : unproven_) peer->connection->close();
  for (const auto& [rank, peer] : members_) peer->connection->close();
}

void Server::acceptSome() {
  for (int i = 0; i < kAcceptAtOnce; ++i) {
    base::Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.valid()) {
      addPeer(std::move(socket));
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    const bool outOfFiles = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
    if (!outOfFiles) return;
    if (unproven_.empty()) {
      // Nobody to drop: look again at the next tick instead of spinning on a port that stays ready.
      loop_.unwatch(listener_.get());
      acceptTimer_ = loop_.after(kTick, [this] { listen(); });
      return;
    }
    ++strangers_.crowdedOut;
    drop(unproven_.front());
  }
}

void Server::addPeer(base::Fd socket) {
  if (unproven_.size() >= unprovenCap_) {
    ++strangers_.crowdedOut;
    drop(unproven_.front());
  }
  auto peer = std::make_shared<Peer>();
  peer->since = loop_.now();
  peer->place = unproven_.insert(unproven_.end(), peer);
  const auto onPeer = [this, weak = std::weak_ptr(peer)](auto method) {
    return [this, weak, method](const auto& argument) {
      if (const auto self = weak.lock()) (this->*method)(self, argument);
    };
  };
  peer->connection = Connection::start(
      loop_, std::move(socket), secret::Handshake::server(options_.key, secret::Purpose::kRendezvous),
      kLargestRequestBytes,
      {.proved = {}, .received = onPeer(&Server::onReceived), .closed = onPeer(&Server::onClosed)});
  keepTicking();
}

void Server::drop(const PeerPtr& peer) {
  // The caller's may be the one that is erased.
  const PeerPtr keep = peer;  // NOLINT(performance-unnecessary-copy-initialization)
  keep->connection->close();
  if (keep->joined) {
    members_.erase(keep->rank);
  } else {
    unproven_.erase(keep->place);
    if (const auto held = held_.find(keep->rank); held != held_.end() && held->second == keep) {
      held_.erase(held);
    }
  }
  if (members_.empty() && allLeft_) {
    loop_.cancel(*allLeftTimer_);
    loop_.post(std::exchange(allLeft_, nullptr));
  }
}

void Server::onClosed(const PeerPtr& peer, const Status& why) {
  if (peer->joined) {
    table_.went(peer->rank, why.message());
    log("rendezvous").debug("rank {} is gone: {}", index(peer->rank), why.message());
  } else if (why.code() == Code::kPermissionDenied) {
    ++strangers_.wrongKey;
    log("rendezvous").debug("{} sent a wrong proof", peer->connection->peer().toString());
  } else if (why.code() == Code::kDataLoss || why.code() == Code::kRefused) {
    ++strangers_.garbage;
    log("rendezvous").debug("{} was dropped: {}", peer->connection->peer().toString(), why.message());
  } else {
    ++strangers_.left;
    log("rendezvous").debug("{} left before its proof", peer->connection->peer().toString());
  }
  drop(peer);
}

void Server::onReceived(const PeerPtr& peer, const std::string& bytes) {
  keepTicking();
  auto message = decode(bytes);
  const auto isWanted = [&](MessageKind kind) {
    const bool beforeJoining = kind == MessageKind::kJoin || kind == MessageKind::kAgreement;
    const bool isRequest = kind >= MessageKind::kSet && kind <= MessageKind::kGather;
    return peer->joined ? isRequest : beforeJoining;
  };
  if (!message.isOk() || !isWanted(message->kind)) {
    peer->connection->close();
    return onClosed(peer, {Code::kDataLoss, "it sent a message that makes no sense"});
  }
  if (peer->joined) return onRequest(peer, *std::move(message));
  peer->rank = rankOf(peer->connection->handshake().claim());
  if (message->kind == MessageKind::kJoin) return meet(peer, message->value);
  compare(peer, message->value);
}

void Server::meet(const PeerPtr& peer, const std::string& newcomer) {
  auto decoded = Newcomer::decode(newcomer);
  if (!decoded.isOk()) return refuse(peer, decoded.status().message());
  peer->newcomer = *std::move(decoded);
  const Duration age = options_.processAge + (loop_.now() - created_);
  peer->earlier = std::min<Duration>(peer->newcomer.age - age, peer->newcomer.waits - (loop_.now() - begun_));
  if (peer->newcomer.job != secret::JobNonce{} && peer->newcomer.job != nonce_) {
    return refuse(peer,
                  fmt::format("{} was a member of a job that is over: end that process", describe(peer)));
  }
  if (peer->newcomer.agreementHash == agreementHash_) return join(peer);
  peer->connection->send(encode({.kind = MessageKind::kShowAgreement}));
}

void Server::compare(const PeerPtr& peer, const std::string& agreement) {
  const auto theirs = Agreement::decode(agreement);
  if (!theirs.isOk()) return refuse(peer, theirs.status().message());
  const std::string theirName = fmt::format("rank {}", index(peer->rank));
  const std::string launch = Agreement::describeOtherLaunch(*theirs, theirName, options_.agreement, "rank 0");
  if (!launch.empty()) {
    return refuse(peer,
                  fmt::format("{} belongs to another launch: {}; end that process, or unset this variable "
                              "on all ranks if they are one job",
                              describe(peer), launch));
  }
  const std::string difference =
      Agreement::describeDifference(*theirs, theirName, options_.agreement, "rank 0");
  if (difference.empty()) return join(peer);
  refuseSettings(peer, fmt::format("{} must be started like rank 0: {}", theirName, difference));
}

// "rank 3 (pid 4711 at 10.0.0.3:40112)"
std::string Server::describe(const PeerPtr& peer) const {
  return fmt::format("rank {} (pid {} at {})", index(peer->rank), peer->newcomer.pid,
                     peer->connection->peer().toString());
}

void Server::join(const PeerPtr& peer) {
  const uint32_t rank = index(peer->rank);
  if (rank >= options_.worldSize) {
    return refuse(peer, fmt::format("rank {} does not exist in a world of {}", rank, options_.worldSize));
  }
  if (rank == 0) {
    return refuse(peer,
                  fmt::format("two processes have rank 0, one here and one at {}; the second is refused, "
                              "give each its own RANK",
                              peer->connection->peer().toString()));
  }
  if (const auto found = members_.find(peer->rank); found != members_.end()) {
    if (isEarly(peer->earlier) && !isEarly(found->second->earlier)) return refuseLeftover(peer);
    return refuse(
        peer,
        fmt::format("two processes have rank {}, pid {} at {} and pid {} at {}; the second is refused, "
                    "give each its own RANK, and end a process that is left over from an earlier launch",
                    rank, found->second->newcomer.pid, found->second->connection->peer().toString(),
                    peer->newcomer.pid, peer->connection->peer().toString()));
  }
  if (const auto held = held_.find(peer->rank); held != held_.end()) {
    if (peer->earlier >= held->second->earlier) return refuseLeftover(peer);
    refuseLeftover(std::exchange(held->second, peer));
    held_.erase(held);
  }
  if (isEarly(peer->earlier)) return hold(peer);
  admit(peer);
}

void Server::hold(const PeerPtr& peer) {
  held_.emplace(peer->rank, peer);
  peer->since = loop_.now();  // its time to prove itself begins anew
  unproven_.splice(unproven_.end(), unproven_, peer->place);
  loop_.after(options_.refusalGrace, [this, weak = std::weak_ptr(peer)] {
    const auto self = weak.lock();  // only this server owns its peers
    if (!self) return;
    const auto held = held_.find(self->rank);
    if (held == held_.end() || held->second != self) return;
    held_.erase(held);
    log("rendezvous")
        .info("{} was started {:.0f} s before rank 0", describe(self), base::seconds(self->earlier));
    admit(self);
  });
}

void Server::refuseLeftover(const PeerPtr& peer) {
  refuse(peer, fmt::format("{} was started {:.0f} s before rank 0, and a process that was started later has "
                           "its rank: it is left over from an earlier launch; end it",
                           describe(peer), base::seconds(peer->earlier)));
}

void Server::admit(const PeerPtr& peer) {
  unproven_.erase(peer->place);
  peer->joined = true;
  members_.emplace(peer->rank, peer);
  refused_.erase(peer->rank);
  table_.came(peer->rank);
  const std::string nonce(reinterpret_cast<const char*>(nonce_.data()), nonce_.size());
  peer->connection->send(encode({.kind = MessageKind::kWelcome, .value = nonce}));
}

// The refused peer closes when it has read why; if it does not, the deadline of the unproven does.
void Server::refuse(const PeerPtr& peer, const std::string& why) {
  ++strangers_.refused;
  log("rendezvous").error("{}", why);
  peer->connection->send(encode({.kind = MessageKind::kRefused, .value = why}));
}

// Without this rank there is no job, unless the right process of that rank is here already or comes in time.
void Server::refuseSettings(const PeerPtr& peer, const std::string& why) {
  refuse(peer, why);
  const bool isMissing = index(peer->rank) < options_.worldSize && !members_.contains(peer->rank);
  if (isMissing && peer->rank != Rank{0}) refused_.try_emplace(peer->rank, why, loop_.now());
}

void Server::giveUpRefused() {
  std::erase_if(refused_, [this](const auto& entry) {
    const auto& [rank, refusal] = entry;
    const bool isLate = loop_.now() - refusal.since >= options_.refusalGrace;
    if (isLate) table_.refused(rank, refusal.why);
    return isLate;
  });
}

void Server::onRequest(const PeerPtr& peer, Message request) {
  const auto respond = [weak = std::weak_ptr(peer->connection),
                        id = request.id](const Result<std::shared_ptr<const std::string>>& value) {
    const auto connection = weak.lock();
    if (!connection) return;
    const Message head{.kind = MessageKind::kAnswer, .code = value.status().code(), .id = id};
    const auto body = value.isOk() ? *value : std::make_shared<const std::string>(value.status().message());
    connection->send(encodeHead(head, body->size()), body);
  };
  switch (request.kind) {
    case MessageKind::kSet: {
      const Status status = table_.set(request.key, std::move(request.value));
      if (!status.isOk()) return respond(status);
      respond(std::make_shared<const std::string>());
      break;
    }
    case MessageKind::kGet: respond(table_.get(request.key)); break;
    case MessageKind::kWait: table_.wait(request.key, request.timeout, respond); break;
    default: table_.gather(peer->rank, request.key, std::move(request.value), request.timeout, respond);
  }
}

void Server::whenAllLeft(Duration timeout, std::function<void()> done) {
  if (members_.empty()) return loop_.post(std::move(done));
  allLeft_ = std::move(done);
  allLeftTimer_ = loop_.after(timeout, [this] { std::exchange(allLeft_, nullptr)(); });
}

void Server::keepTicking() {
  if (!ticker_) ticker_ = loop_.after(kTick, [this] { tick(); });
}

void Server::tick() {
  ticker_.reset();
  while (!unproven_.empty() && loop_.now() - unproven_.front()->since >= options_.handshakeDeadline) {
    ++strangers_.silent;
    drop(unproven_.front());
  }
  giveUpRefused();
  if (loop_.now() - toldAt_ >= kTellEvery) tellProgress();
  const bool somethingGoesOn = !unproven_.empty() || !refused_.empty() || table_.longestGather() ||
                               strangers_.total() > strangersTold_;
  if (somethingGoesOn) keepTicking();
}

void Server::tellProgress() {
  toldAt_ = loop_.now();
  if (const auto waiting = table_.longestGather()) {
    log("rendezvous")
        .info("waiting for {} ({} of {} here), {:.0f}s", describeRanks(waiting->missing),
              options_.worldSize - waiting->missing.size(), options_.worldSize,
              base::seconds(waiting->since));
  }
  if (strangers_.total() > strangersTold_) {
    strangersTold_ = strangers_.total();
    log("rendezvous")
        .warn(
            "{} connections to port {} did not become a rank: {} silent, {} garbage, {} with a wrong key, {} "
            "left "
            "before their proof (a rank with another job key does), {} crowded out, {} refused",
            strangersTold_, port_, strangers_.silent, strangers_.garbage, strangers_.wrongKey,
            strangers_.left, strangers_.crowdedOut, strangers_.refused);
  }
}

}  // namespace sluice::rendezvous
