#include <sluice/join/rendezvous/remote_store.h>

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include <sluice/base/log.h>
#include <sluice/base/text.h>
#include <sluice/base/units.h>

namespace sluice::rendezvous {
namespace {

using namespace std::chrono_literals;

constexpr Duration kFirstBackOff = 20ms;
constexpr Duration kLongestBackOff = 1s;
constexpr Duration kAttemptDeadline = 5s;
// Rank 0 ends every wait itself and says whom it waited for; rank 0 is given up only if it is
// silent for longer.
constexpr Duration kGrace = 10s;
// Rank 0 listens for as long as it lives, so a few attempts that find nobody are enough to know
// that it is gone.
constexpr int kMostRefusals = 4;

}  // namespace

RemoteStore::RemoteStore(net::EpollLoop& loop, RemoteOptions options)
    : loop_(loop),
      options_(std::move(options)),
      key_(options_.key),
      created_(loop.now()),
      backOff_(kFirstBackOff) {
  SLUICE_CHECK(!options_.master.empty());
  // Another process of this rank, earlier or later, has other numbers: rank 0 must not take its
  // requests for repetitions.
  std::memcpy(&nextId_, process_.data(), sizeof nextId_);
}

RemoteStore::~RemoteStore() {
  if (connection_) connection_->close();
  stopTimers();
  const Status ended(Code::kCancelled, "the rendezvous has ended");
  // Everybody who waits is told, exactly once: first the join, then the requests, in the order in
  // which they were made. Handlers are posted, so this destructor runs no foreign code.
  if (joined_) finishJoin(ended);
  while (!pending_.empty()) complete(pending_.begin()->first, ended);
}

std::string RemoteStore::masterName() const {
  return fmt::format(
      "rank 0 at {}",
      options_.master[(std::max<size_t>(attempts_, 1) - 1) % options_.master.size()].toString());
}

void RemoteStore::join(Done joined) {
  SLUICE_DCHECK(loop_.inLoop());
  SLUICE_CHECK(!joined_ && !isMember_);
  joined_ = std::move(joined);
  begun_ = toldAt_ = loop_.now();
  joinTimer_ = loop_.after(options_.timeout, [this] { onTimeUp(); });
  attempt();
}

void RemoteStore::onTimeUp() {
  if (connection_) connection_->close();
  keyRequest_.reset();
  if (isMember_) return loseMaster();
  finishJoin(
      {Code::kTimeout,
       fmt::format(
           "rank {} did not reach {} in {}: {}; is rank 0 running, and may its port be reached?",
           index(options_.rank), masterName(), base::formatDuration(options_.timeout),
           lastFailure_.isOk() ? "no answer" : lastFailure_.message())});
}

void RemoteStore::stopTimers() {
  for (auto* timer : {&attemptTimer_, &joinTimer_}) {
    if (*timer) loop_.cancel(**timer);
    timer->reset();
  }
}

void RemoteStore::finishJoin(Status status) {
  stopTimers();
  isMember_ = isConnected_ = status.isOk();
  if (!isMember_) lost_ = status;
  loop_.post(
      [joined = std::exchange(joined_, nullptr), status = std::move(status)] { joined(status); });
}

void RemoteStore::rejoin(const Status& why) {
  log("rendezvous").debug("the connection to {} broke: {}", masterName(), why.message());
  // A broken connection is not the end of rank 0. Requests stay pending and are sent again
  // under their numbers, and rank 0 counts each number once, so a repetition does no harm.
  isConnected_ = false;
  broke_ = why;
  refusals_ = 0;
  backOff_ = kFirstBackOff;
  begun_ = toldAt_ = loop_.now();
  joinTimer_ = loop_.after(options_.timeout, [this] { onTimeUp(); });
  attempt();
}

void RemoteStore::attempt() {
  // A rank 0 that was started anew has another key, so a rank asks again until it is a member.
  if (options_.keyFrom && job_ == secret::JobNonce{}) return askForKey(*options_.keyFrom);
  connect();
}

void RemoteStore::askForKey(const Address& whom) {
  const auto failed = [this](const Status& why) {
    if (why.code() == Code::kPermissionDenied) return finishJoin(why);
    tryAgain(why);
  };
  keyRequest_ = std::make_unique<KeyRequest>(loop_, whom);
  const Status asked = keyRequest_->start([this, failed](Result<secret::JobKey> key) {
    loop_.cancel(*attemptTimer_);
    if (!key.isOk()) return failed(key.status());
    key_ = *std::move(key);
    connect();
  });
  if (!asked.isOk()) return failed(asked);
  attemptTimer_ = loop_.after(kAttemptDeadline, [this] {
    keyRequest_.reset();
    tryAgain({Code::kTimeout, "no answer"});
  });
}

void RemoteStore::connect() {
  const Address& master = options_.master[attempts_++ % options_.master.size()];
  net::Fd socket(::socket(master.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return tryAgain(base::fromErrno("cannot open a socket"));
  if (::connect(socket.get(), master.raw(), master.rawSize()) != 0 && errno != EINPROGRESS) {
    return tryAgain(base::fromErrno("cannot connect"));
  }
  connection_ = Connection::start(
      loop_, std::move(socket),
      secret::Handshake::client(key_, secret::Purpose::kRendezvous, claimOf(options_.rank)),
      kLargestAnswerBytes,
      {.proved = [this] { onProved(); },
       .received = [this](const std::string& bytes) { onReceived(bytes); },
       .closed = [this](const Status& why) { onClosed(why); }});
  attemptTimer_ = loop_.after(kAttemptDeadline, [this] {
    connection_->close();
    tryAgain({Code::kTimeout, "no answer"});
  });
}

void RemoteStore::tryAgain(const Status& why) {
  lastFailure_ = why;
  if (attemptTimer_) loop_.cancel(*attemptTimer_);
  const bool isWaitedFor = !isMember_ || !pending_.empty();
  if (isWaitedFor && loop_.now() - toldAt_ >= kTellEvery) {
    toldAt_ = loop_.now();
    const Duration left = options_.timeout - (loop_.now() - begun_);
    log("rendezvous")
        .info("{} does not answer yet ({}); trying for {:.0f}s more", masterName(), why.message(),
              base::seconds(left));
  }
  // The delay depends on the rank: ranks that were started together would otherwise knock together
  // for ever.
  const Duration delay = backOff_ * (64 + index(options_.rank) % 64) / 64;
  backOff_ = std::min<Duration>(backOff_ * 3 / 2, kLongestBackOff);
  attemptTimer_ = loop_.after(delay, [this] { attempt(); });
}

void RemoteStore::onProved() {
  const auto since = [this](TimePoint then) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(loop_.now() - then);
  };
  // Ages travel as durations, not as times of day: the clocks of two hosts may differ, but each
  // knows how long ago its own process began.
  const Newcomer self{.agreementHash = options_.agreement.hash(),
                      .process = process_,
                      .job = job_,
                      .age = options_.processAge + since(created_),
                      .waits = since(options_.begun == TimePoint{} ? begun_ : options_.begun),
                      .pid = static_cast<uint32_t>(::getpid())};
  connection_->send(encode({.kind = MessageKind::kJoin, .value = self.encode()}));
}

void RemoteStore::onClosed(const Status& why) {
  if (isConnected_) return rejoin(why);
  if (isMember_) {
    // Rank 0 is gone: either somebody else listens at its address now, or nobody does.
    if (why.code() == Code::kPermissionDenied) return loseMaster();
    if (why.code() == Code::kRefused && ++refusals_ == kMostRefusals) return loseMaster();
    return tryAgain(why);
  }
  // A wrong key is final for a rank that has brought its own. One that gets its key from rank 0
  // may only have asked a rank 0 that was started anew, and asks again.
  if (why.code() != Code::kPermissionDenied || options_.keyFrom) return tryAgain(why);
  finishJoin(why.withContext(
      fmt::format("rank {} does not trust {}", index(options_.rank), masterName())));
}

void RemoteStore::loseMaster() {
  stopTimers();
  std::string waiting;
  for (const auto& [id, pending] : pending_)
    waiting +=
        fmt::format("{}'{}'", waiting.empty() ? " while waiting for " : ", ", pending.message.key);
  lost_ = Status(Code::kPeerLost,
                 fmt::format("{} is gone{}: {}", masterName(), waiting, broke_.message()));
  while (!pending_.empty()) complete(pending_.begin()->first, lost_);
}

void RemoteStore::onWelcome(const Message& welcome) {
  secret::JobNonce job{};
  std::memcpy(job.data(), welcome.value.data(), job.size());
  if (!isMember_) {
    job_ = job;
    return finishJoin(base::ok());
  }
  stopTimers();
  log("rendezvous").info("{} is connected again", masterName());
  isConnected_ = true;
  for (auto& [id, pending] : pending_) send(pending);
}

// True iff this is the nonce of a job, and, for a member, of its own job.
bool RemoteStore::isWelcome(std::string_view nonce) const {
  if (nonce.size() != job_.size()) return false;
  return !isMember_ || std::memcmp(nonce.data(), job_.data(), job_.size()) == 0;
}

void RemoteStore::onReceived(const std::string& bytes) {
  const auto message = decode(bytes);
  // A good message depends on how far this rank has come: answers only for a member that is
  // connected, a welcome or a question only before. Everything else ends the connection, since
  // there is no telling what the other end means.
  const auto kind = message.isOk() ? message->kind : MessageKind{};
  if (isConnected_ && kind == MessageKind::kAnswer) {
    if (message->code == Code::kOk) return complete(message->id, message->value);
    return complete(message->id, Status(message->code, base::printable(message->value)));
  }
  if (!isConnected_ && kind == MessageKind::kWelcome && isWelcome(message->value)) {
    return onWelcome(*message);
  }
  if (!isConnected_ && kind == MessageKind::kShowAgreement) {
    connection_->send(
        encode({.kind = MessageKind::kAgreement, .value = options_.agreement.encode()}));
    return;
  }
  connection_->close();
  const Status refused(Code::kRefused, message.isOk() ? base::printable(message->value) : "");
  if (!isMember_ && kind == MessageKind::kRefused) return finishJoin(refused);
  const std::string why = "it sent a malformed message";
  if (isMember_) {
    broke_ = kind == MessageKind::kRefused ? refused : Status(Code::kDataLoss, why);
    return loseMaster();
  }
  finishJoin({Code::kDataLoss, fmt::format("{}: {}", masterName(), why)});
}

void RemoteStore::request(Message message, Duration timeout, Got got) {
  SLUICE_DCHECK(loop_.inLoop());
  Status status = lost_;
  if (status.isOk()) status = checkSizes(message.key, message.value);
  if (status.isOk() && !isMember_)
    status = Status(Code::kUnavailable, "join() has not completed yet");
  if (!status.isOk()) return loop_.post([got = std::move(got), status] { got(status); });
  message.id = nextId_++;
  const uint32_t id = message.id;
  // Rank 0 times every wait itself and names whom it waited for. This timer is the last resort,
  // for a rank 0 that is alive but says nothing.
  const TimerId timer = loop_.after(timeout + kGrace, [this, id, key = message.key, timeout] {
    complete(
        id, Status(Code::kTimeout, fmt::format("{} has not answered about '{}' in {}", masterName(),
                                               key, base::formatDuration(timeout + kGrace))));
  });
  Pending& pending =
      pending_
          .emplace(id, Pending{std::move(message), loop_.now() + timeout, std::move(got), timer})
          .first->second;
  if (isConnected_) send(pending);
}

void RemoteStore::send(Pending& pending) {
  // A repeated request asks only for what is left of its time.
  pending.message.timeout = std::max<Duration>(pending.until - loop_.now(), Duration(0));
  connection_->send(encode(pending.message));
}

void RemoteStore::complete(uint32_t id, Result<std::string> result) {
  auto node = pending_.extract(id);
  if (!node) return;  // it had timed out already
  loop_.cancel(node.mapped().timer);
  loop_.post([got = std::move(node.mapped().got), result = std::move(result)] { got(result); });
}

void RemoteStore::set(std::string key, std::string value, Done done) {
  request({.kind = MessageKind::kSet, .key = std::move(key), .value = std::move(value)}, {},
          [done = std::move(done)](const Result<std::string>& result) { done(result.status()); });
}

void RemoteStore::get(std::string key, Got got) {
  request({.kind = MessageKind::kGet, .key = std::move(key)}, {}, std::move(got));
}

void RemoteStore::wait(std::string key, Duration timeout, Got got) {
  request({.kind = MessageKind::kWait, .key = std::move(key)}, timeout, std::move(got));
}

void RemoteStore::gather(std::string key, std::string value, Duration timeout, GotAll got) {
  request({.kind = MessageKind::kGather, .key = std::move(key), .value = std::move(value)}, timeout,
          [got = std::move(got)](const Result<std::string>& all) {
            if (!all.isOk()) return got(all.status());
            got(decodeList(*all));
          });
}

}  // namespace sluice::rendezvous
