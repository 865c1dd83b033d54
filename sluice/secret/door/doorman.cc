#include <sluice/secret/door/doorman.h>

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <future>
#include <iterator>
#include <list>
#include <optional>
#include <utility>

#include <sluice/base/check.h>
#include <sluice/secret/door/listen.h>

namespace sluice::door {
namespace {

constexpr int kAcceptsPerEvent = 64;  // then the connections that wait have their turn
constexpr auto kRest = std::chrono::milliseconds(20);

// The limits of a narrowed door.
constexpr size_t kFewStrangers = 64;
constexpr int kFewWaiting =
    1024;  // in the kernel: a second's worth, for ranks that come back all at once
constexpr double kAcceptsPerSecond = 1000;
constexpr double kAcceptsAtOnce = 64;

}  // namespace

DoorThread makeDoorThread() {
  return std::make_shared<net::LoopThread>("sluice-door");
}

// The part that the loop owns.
class Doorman::Door final {
 public:
  Door(net::EpollLoop& loop, net::Fd listener, const DoorOptions& options, Handlers handlers)
      : loop_(loop),
        listener_(std::move(listener)),
        options_(options),
        handlers_(std::move(handlers)) {}

  void open() { listen(); }

  void close() {
    if (!listener_.valid()) return;
    if (resting_) {
      loop_.cancel(*std::exchange(resting_, std::nullopt));
    } else {
      loop_.unwatch(listener_.get());
    }
    while (!strangers_.empty()) release(strangers_.begin());
    while (!guests_.empty()) release(guests_.begin());
    listener_.reset();
  }

  void narrow() {
    if (isNarrow_ || !listener_.valid()) return;
    isNarrow_ = true;
    options_.maxStrangers = std::min(options_.maxStrangers, kFewStrangers);
    limitWaiting(listener_, kFewWaiting);
    refilledAt_ = loop_.now();
  }

 private:
  struct Visitor {
    std::unique_ptr<Applicant> candidate;
    Address peer;
    TimerId deadline{};
    bool isGuest = false;
  };
  using Visitors = std::list<Visitor>;  // oldest first

  void listen() {
    loop_.watch(listener_.get(), EPOLLIN, [this](uint32_t) { acceptSome(); });
  }

  void rest() {
    loop_.unwatch(listener_.get());
    resting_ = loop_.after(kRest, [this] {
      resting_.reset();
      listen();
    });
  }

  bool mayAccept() {
    if (!isNarrow_) return true;
    const TimePoint now = loop_.now();
    // A bucket of tokens: a burst is let in at once, as when all ranks come back after a broken
    // switch, and then so many a second. The others wait in the kernel and cost this process
    // nothing.
    tokens_ =
        std::min(kAcceptsAtOnce, tokens_ + kAcceptsPerSecond * base::seconds(now - refilledAt_));
    refilledAt_ = now;
    if (tokens_ < 1) return false;
    tokens_ -= 1;
    return true;
  }

  void acceptSome() {
    // Without a free descriptor a connection cannot even be accepted to be refused. The oldest
    // stranger makes room; if there is none, the door rests, since epoll would report the same
    // connection again and again.
    for (int i = 0; i < kAcceptsPerEvent; ++i) {
      if (!mayAccept()) return rest();
      net::Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (socket.valid()) {
        admit(std::move(socket));
      } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        if (strangers_.empty()) return rest();
        turnAway(strangers_.begin(),
                 {Code::kUnavailable, "this process can open no more files; raise ulimit -n"});
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        return;
      }
      // Any other error concerns one connection that ended before it was accepted.
    }
  }

  void admit(net::Fd socket) {
    const Address peer = Address::peerOf(socket.get());
    if (!peer.isSet()) return;  // it has gone already
    if (strangers_.size() >= options_.maxStrangers) {
      turnAway(strangers_.begin(),
               {Code::kUnavailable, "too many connections without the job key were open at once"});
    }
    strangers_.push_back({.candidate = handlers_.greet(std::move(socket), peer), .peer = peer});
    const auto visitor = std::prev(strangers_.end());
    visitor->deadline = loop_.after(options_.deadline, [this, visitor] {
      turnAway(visitor, {Code::kTimeout, "it did not prove the job key in time"});
    });
    advance(visitor);
  }

  void advance(Visitors::iterator visitor) {
    Applicant::Progress progress = visitor->candidate->advance();
    switch (progress.step) {
      case Applicant::Step::kProved: return handlers_.proved(release(visitor));
      case Applicant::Step::kFailed: return turnAway(visitor, progress.why);
      case Applicant::Step::kWait: break;
    }
    if (!visitor->isGuest && visitor->candidate->saidHello()) {
      if (guests_.size() >= options_.maxGuests) {
        turnAway(guests_.begin(),
                 {Code::kUnavailable, "too many connections with the job key were open at once"});
      }
      // From here on this connection is counted among those that know the key: a flood of
      // strangers can no longer push it out.
      visitor->isGuest = true;
      guests_.splice(guests_.end(), strangers_, visitor);
    }
    loop_.watch(visitor->candidate->fd(), visitor->candidate->events(),
                [this, visitor](uint32_t) { advance(visitor); });
  }

  void turnAway(Visitors::iterator visitor, const Status& why) {
    handlers_.turnedAway(visitor->peer, why);
    release(visitor);
  }

  std::unique_ptr<Applicant> release(Visitors::iterator visitor) {
    loop_.cancel(visitor->deadline);
    loop_.unwatch(visitor->candidate->fd());
    auto candidate = std::move(visitor->candidate);
    (visitor->isGuest ? guests_ : strangers_).erase(visitor);
    return candidate;
  }

  net::EpollLoop& loop_;
  net::Fd listener_;
  DoorOptions options_;
  const Handlers handlers_;
  Visitors strangers_;
  Visitors guests_;
  std::optional<TimerId> resting_;
  bool isNarrow_ = false;
  double tokens_ = kAcceptsAtOnce;
  TimePoint refilledAt_{};
};

Doorman::Doorman(DoorThread thread, net::Fd listener, const DoorOptions& options, Handlers handlers)
    : thread_(std::move(thread)),
      door_(std::make_shared<Door>(thread_->loop(), std::move(listener), options,
                                   std::move(handlers))) {
  thread_->loop().post([door = door_] { door->open(); });
}

Doorman::~Doorman() {
  SLUICE_DCHECK(!thread_->loop().inLoop());
  // Waits until the door is closed, before anybody may listen on its port again and before the
  // objects that the handlers use are gone. A loop that has ended destroys the task without running
  // it, which ends the wait as well.
  auto closed = std::make_shared<std::promise<void>>();
  const auto wait = closed->get_future();
  thread_->loop().post(
      [door = std::exchange(door_, nullptr), closed = std::move(closed)]() mutable {
        door->close();
        door.reset();
        closed->set_value();
      });
  wait.wait();
}

void Doorman::narrow() {
  thread_->loop().post([door = door_] { door->narrow(); });
}

}  // namespace sluice::door
