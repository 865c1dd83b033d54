#include <sluice/join/rendezvous/server.h>

#include <sys/resource.h>

#include <algorithm>

#include <fmt/format.h>

#include <sluice/base/byte_io.h>
#include <sluice/base/log.h>
#include <sluice/join/rendezvous/rank_list.h>
#include <sluice/secret/door/listen.h>

namespace sluice::rendezvous {
namespace {

using namespace std::chrono_literals;

constexpr Duration kTick = 1s;
constexpr Duration kOneLaunch = 1s;  // the ranks of one launch are usually started within this time

bool isEarly(Duration earlier) {
  return earlier > kOneLaunch;
}

}  // namespace

uint64_t raiseFileLimit(uint64_t needed) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  if (limit.rlim_cur >= needed) return limit.rlim_cur;
  limit.rlim_cur = std::min<rlim_t>(needed, limit.rlim_max);
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) ::getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

Result<std::unique_ptr<Server>> Server::start(net::EpollLoop& loop, ServerOptions options) {
  auto listener = door::listenOn(options.listen);
  if (!listener.isOk()) {
    return Status(listener.status().code(), fmt::format("rank 0 {}; choose another MASTER_PORT",
                                                        listener.status().message()));
  }
  constexpr uint64_t kOtherFiles = 64;
  // The program has files of its own, and each rank also connects with the fabric, on several
  // lanes.
  const uint64_t files = raiseFileLimit(uint64_t{8} * options.worldSize + 4 * kOtherFiles);
  if (files < options.worldSize + kOtherFiles) {
    return Status(
        Code::kUnavailable,
        fmt::format("rank 0 may open {} files but {} ranks connect to it; run: ulimit -Hn {}",
                    files, options.worldSize, options.worldSize + 2 * kOtherFiles));
  }
  // Strangers share the descriptors with the ranks. Their number is cut to what is left, so
  // that a flood of connections never keeps a rank of the job from connecting.
  const uint64_t spare = files - options.worldSize - kOtherFiles / 2;
  options.maxStrangers =
      std::min<size_t>(options.maxStrangers, std::max<uint64_t>(spare, kOtherFiles / 2));
  return std::unique_ptr<Server>(new Server(loop, std::move(options), *std::move(listener)));
}

Server::Server(net::EpollLoop& loop, ServerOptions options, net::Fd listener)
    : loop_(loop),
      options_(std::move(options)),
      agreementHash_(options_.agreement.hash()),
      port_(Address::localOf(listener.get()).port()),
      created_(loop.now()),
      begun_(options_.begun == TimePoint{} ? created_ : options_.begun),
      table_(loop, options_.worldSize),
      toldAt_(loop.now()) {
  doorman_ = std::make_unique<door::Doorman>(
      options_.door ? options_.door : door::makeDoorThread(), std::move(listener),
      door::DoorOptions{.deadline = options_.handshakeDeadline,
                        .maxStrangers = options_.maxStrangers,
                        .maxGuests = std::max<size_t>(options_.maxStrangers, options_.worldSize)},
      doorHandlers());
  keepTicking();
}

Server::~Server() {
  // The doorman goes first: its handlers run on another thread and use what is above.
  doorman_.reset();
  if (ticker_) loop_.cancel(*ticker_);
  if (allLeftTimer_) loop_.cancel(*allLeftTimer_);
  for (const auto& peer : newcomers_) peer->connection->close();
  for (const auto& [rank, peer] : members_) peer->connection->close();
}

// All handlers run on the doorman's thread.
door::Doorman::Handlers Server::doorHandlers() {
  door::Doorman::Handlers handlers;
  handlers.greet = [this](net::Fd socket, const Address&) {
    return std::make_unique<door::Greeting>(
        std::move(socket), secret::Handshake::server(options_.key, secret::Purpose::kRendezvous));
  };
  handlers.proved = [this,
                     weak = std::weak_ptr(self_)](std::unique_ptr<door::Applicant> candidate) {
    // The greeting is shared, since a task must be copyable.
    auto greeting =
        std::make_shared<door::Greeting>(std::move(static_cast<door::Greeting&>(*candidate)));
    loop_.post([weak, greeting] {
      if (const auto self = weak.lock()) (*self)->addPeer(std::move(*greeting));
    });
  };
  handlers.turnedAway = [this, weak = std::weak_ptr(self_)](const Address& who, const Status& why) {
    log("rendezvous").debug("{} was turned away: {}", who.toString(), why.message());
    switch (why.code()) {
      case Code::kTimeout: countStranger(&Strangers::silent); break;
      case Code::kUnavailable: countStranger(&Strangers::crowdedOut); break;
      case Code::kPermissionDenied: countStranger(&Strangers::wrongKey); break;
      case Code::kPeerLost: countStranger(&Strangers::left); break;
      default: countStranger(&Strangers::garbage);
    }
    // Posts at most one task a second, so that a flood costs the loop nothing.
    if (isTickAsked_.exchange(true)) return;
    loop_.post([weak] {
      if (const auto self = weak.lock()) (*self)->keepTicking();
    });
  };
  return handlers;
}

void Server::countStranger(uint64_t Strangers::* how) {
  strangers_.with([&](Strangers& strangers) { ++(strangers.*how); });
}

void Server::addPeer(door::Greeting greeting) {
  auto peer = std::make_shared<Peer>();
  peer->since = loop_.now();
  peer->place = newcomers_.insert(newcomers_.end(), peer);
  // Handlers hold their peer weakly, because the peer holds the connection that holds the
  // handlers.
  const auto onPeer = [this, weak = std::weak_ptr(peer)](auto method) {
    return [this, weak, method](const auto& argument) {
      if (const auto self = weak.lock()) (this->*method)(self, argument);
    };
  };
  peer->connection = Connection::start(
      loop_, greeting.takeSocket(), greeting.handshake(), kLargestRequestBytes,
      {.proved = {}, .received = onPeer(&Server::onReceived), .closed = onPeer(&Server::onClosed)});
  keepTicking();
}

void Server::drop(const PeerPtr& peer) {
  // The caller's pointer may be the one that is erased.
  const PeerPtr keep = peer;  // NOLINT(performance-unnecessary-copy-initialization)
  keep->connection->close();
  if (keep->joined) {
    members_.erase(keep->rank);
  } else {
    newcomers_.erase(keep->place);
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
    log("rendezvous").debug("rank {} is gone: {}", index(peer->rank), why.message());
    table_.disconnected(peer->rank);
    // A process that ends closes its connection, and its rank is gone at once. A connection
    // that breaks says nothing about the process, which may be on its way back.
    if (peer->connection->hasReachedEnd()) {
      table_.went(peer->rank, why.message());
    } else {
      awaitReturn(peer, why);
    }
  } else {
    countStranger(why.code() == Code::kDataLoss ? &Strangers::garbage : &Strangers::left);
    log("rendezvous")
        .debug("{} was dropped: {}", peer->connection->peer().toString(), why.message());
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
  // A newcomer may only say who it is, and a member only ask the table: a message out of turn
  // is treated like garbage.
  if (!message.isOk() || !isWanted(message->kind)) {
    peer->connection->close();
    return onClosed(peer, {Code::kDataLoss, "it sent a malformed message"});
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
  // Two ages are compared, and the smaller difference counts: a process may have been started
  // long before rank 0 and have looked for it only now, as with a launcher that prepares its
  // ranks; that is no leftover.
  peer->earlier =
      std::min<Duration>(peer->newcomer.age - age, peer->newcomer.waits - (loop_.now() - begun_));
  if (peer->newcomer.job != secret::JobNonce{} && peer->newcomer.job != nonce_) {
    return refuse(peer, fmt::format("{} was a member of a job that is over: end that process",
                                    describe(peer)));
  }
  if (peer->newcomer.agreementHash == agreementHash_) return join(peer);
  peer->connection->send(encode({.kind = MessageKind::kShowAgreement}));
}

void Server::compare(const PeerPtr& peer, const std::string& agreement) {
  const auto theirs = Agreement::decode(agreement);
  if (!theirs.isOk()) return refuse(peer, theirs.status().message());
  const std::string theirName = fmt::format("rank {}", index(peer->rank));
  const std::string launch =
      Agreement::describeOtherLaunch(*theirs, theirName, options_.agreement, "rank 0");
  if (!launch.empty()) {
    return refuse(
        peer,
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
    return refuse(
        peer,
        fmt::format("rank {} does not exist in a job of {} ranks; RANK must be below WORLD_SIZE",
                    rank, options_.worldSize));
  }
  if (rank == 0) {
    return refuse(
        peer,
        fmt::format("two processes have rank 0, one here and one at {}; the second is refused, "
                    "give each its own RANK",
                    peer->connection->peer().toString()));
  }
  const bool isBack = peer->newcomer.job == nonce_;
  // Three cases for a rank that is here already: the same process comes back over a new
  // connection, a leftover of an earlier launch is told so, and of two equal claims the second
  // is refused, since the first may have begun to work.
  if (const auto found = members_.find(peer->rank); found != members_.end()) {
    if (isBack && found->second->newcomer.process == peer->newcomer.process) {
      // Its connection broke, and this end has not noticed that yet.
      found->second->connection->close();
      table_.disconnected(peer->rank);
      members_.erase(found);
      return admit(peer);
    }
    if (isEarly(peer->earlier) && !isEarly(found->second->earlier)) return refuseLeftover(peer);
    return refuse(
        peer,
        fmt::format(
            "two processes have rank {}, pid {} at {} and pid {} at {}; the second is refused, "
            "give each its own RANK, and end a process that is left over from an earlier launch",
            rank, found->second->newcomer.pid, found->second->connection->peer().toString(),
            peer->newcomer.pid, peer->connection->peer().toString()));
  }
  // Two processes claim one rank and both may be leftovers. The one that was started later is
  // more likely of this launch; the other is refused for good.
  if (const auto held = held_.find(peer->rank); held != held_.end()) {
    if (peer->earlier >= held->second->earlier) return refuseLeftover(peer);
    refuseLeftover(std::exchange(held->second, peer));
    held_.erase(held);
  }
  if (isEarly(peer->earlier) && !isBack) return hold(peer);
  admit(peer);
}

// A connection that broke says nothing about the rank: it may connect again.
void Server::awaitReturn(const PeerPtr& peer, const Status& why) {
  away_[peer->rank] = peer;
  loop_.after(options_.returnGrace, [this, weak = std::weak_ptr(peer), why] {
    const auto self = weak.lock();  // only this server owns its peers
    if (!self) return;
    const auto away = away_.find(self->rank);
    if (away == away_.end() || away->second != self) return;
    away_.erase(away);
    table_.went(self->rank, why.message());
  });
}

void Server::hold(const PeerPtr& peer) {
  held_.emplace(peer->rank, peer);
  peer->since = loop_.now();  // its time to prove itself begins anew
  newcomers_.splice(newcomers_.end(), newcomers_, peer->place);
  loop_.after(options_.refusalGrace, [this, weak = std::weak_ptr(peer)] {
    const auto self = weak.lock();  // only this server owns its peers
    if (!self) return;
    const auto held = held_.find(self->rank);
    if (held == held_.end() || held->second != self) return;
    held_.erase(held);
    log("rendezvous")
        .info("{} was started {:.0f} s before rank 0", describe(self),
              base::seconds(self->earlier));
    admit(self);
  });
}

void Server::refuseLeftover(const PeerPtr& peer) {
  refuse(
      peer,
      fmt::format("{} was started {:.0f} s before rank 0, and a process that was started later has "
                  "its rank: it is left over from an earlier launch; end it",
                  describe(peer), base::seconds(peer->earlier)));
}

void Server::admit(const PeerPtr& peer) {
  newcomers_.erase(peer->place);
  peer->joined = true;
  members_.emplace(peer->rank, peer);
  // Doubts about this rank concerned another process: the right one is here now, and the others
  // need not wait for its refusal to run out.
  refused_.erase(peer->rank);
  away_.erase(peer->rank);
  if (peer->newcomer.job == nonce_)
    log("rendezvous").info("{} has connected again", describe(peer));
  table_.came(peer->rank);
  peer->connection->send(encode({.kind = MessageKind::kWelcome, .value = base::textOf(nonce_)}));
  if (members_.size() + 1 == options_.worldSize) doorman_->narrow();
}

// The refused peer closes the connection when it has read why; otherwise its deadline to join ends
// it.
void Server::refuse(const PeerPtr& peer, const std::string& why) {
  countStranger(&Strangers::refused);
  log("rendezvous").error("{}", why);
  peer->connection->send(encode({.kind = MessageKind::kRefused, .value = why}));
}

// Without this rank there is no job, unless the right process of that rank is here already or comes
// in time.
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
  // The answer may come much later, when the rank has gone. So the connection is held weakly:
  // an answer to nobody is thrown away.
  const auto respond = [weak = std::weak_ptr(peer->connection),
                        id = request.id](const Result<std::shared_ptr<const std::string>>& value) {
    const auto connection = weak.lock();
    if (!connection) return;
    const Message head{.kind = MessageKind::kAnswer, .code = value.status().code(), .id = id};
    const auto body =
        value.isOk() ? *value : std::make_shared<const std::string>(value.status().message());
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
    case MessageKind::kWait: table_.wait(peer->rank, request.key, request.timeout, respond); break;
    default:
      table_.gather(peer->rank, request.id, request.key, std::move(request.value), request.timeout,
                    respond);
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
  isTickAsked_ = false;
  // Newcomers are ordered by their time, so only the first can be due.
  while (!newcomers_.empty() &&
         loop_.now() - newcomers_.front()->since >= options_.handshakeDeadline) {
    countStranger(&Strangers::silent);
    drop(newcomers_.front());
  }
  giveUpRefused();
  if (loop_.now() - toldAt_ >= kTellEvery) tellProgress();
  // The tick stops when nothing is left to watch, and keepTicking() starts it again: a job that
  // runs for days wakes its rank 0 for nothing.
  const bool somethingGoesOn = !newcomers_.empty() || !refused_.empty() || table_.longestGather() ||
                               strangers().total() > strangersTold_;
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
  if (const Strangers strangers = this->strangers(); strangers.total() > strangersTold_) {
    strangersTold_ = strangers.total();
    log("rendezvous")
        .warn(
            "{} connections to port {} did not become a rank: {} silent, {} garbage, {} with a "
            "wrong key, {} "
            "left "
            "before their proof (a rank with another job key does), {} crowded out, {} refused",
            strangersTold_, port_, strangers.silent, strangers.garbage, strangers.wrongKey,
            strangers.left, strangers.crowdedOut, strangers.refused);
  }
}

}  // namespace sluice::rendezvous
