// The end of the connection with one rank, by loss or goodbye, and with all of them.
#include <poll.h>

#include <utility>

#include <sluice/base/check.h>
#include <sluice/transport/fabric/common.h>
#include <sluice/transport/fabric/ucx/library.h>
#include <sluice/transport/fabric/ucx/node.h>

namespace sluice::fabric::ucx {
namespace {

// UCX ends what was cut off within a few rounds. We wait no longer than this: destroying the worker
// ends the rest.
constexpr auto kPatienceWithUcx = std::chrono::milliseconds(300);
constexpr auto kQuiet = std::chrono::milliseconds(50);

}  // namespace

void Node::peerLost(Peer& peer, const Status& why) {
  if (state_ == State::kEnded || !peer.gone.isOk()) return;
  // A peer that breaks off after our goodbye has heard it: the break is an echo of our own leaving.
  peer.gone = peer.saidGoodbye ? leftStatus(peer.rank) : lostStatus(peer.rank, why);
  peer.isNewsDue = !peer.saidGoodbye;
  cutOff(peer);
}

void Node::peerLeft(Peer& peer) {
  if (state_ == State::kEnded || !peer.gone.isOk()) return;
  // The last acknowledgements go out before the endpoints do: the rank that leaves waits for
  // them to know that all has been taken.
  for (const Lane lane : {Lane::kControl, Lane::kUrgent, Lane::kBulk}) tellTaken(peer, lane);
  if (!peer.gone.isOk()) return;
  peer.gone = leftStatus(peer.rank);
  peer.isNewsDue = true;
  cutOff(peer);
}

// Ends everything that is pending with a rank that is gone. An operation that UCX holds ends when
// UCX lets go of it: until then its buffers are not the user's.
void Node::cutOff(Peer& peer) {
  // End the endpoints before the descriptors are given back: with a way to the sender left, UCX
  // would tell it that all went well.
  for (PeerLane& stream : peer.streams) stream.endpoint.reset();
  for (PeerLane& stream : peer.streams) {
    for (Queued& queued : std::exchange(stream.queue, {})) {
      if (queued.done)
        news_.emplace_back([done = std::move(queued.done), why = peer.gone] { done(why); });
    }
    for (auto& [sequence, message] : std::exchange(stream.waiting, {})) release(message);
    stream.isStopped = false;
    stream.window = SendWindow(options_.windowBytes);
  }
  tellIfGone(peer);
}

void Node::tellIfGone(Peer& peer) {
  if (!peer.isIdle() || !std::exchange(peer.isNewsDue, false)) return;
  news_.emplace_back([this, rank = peer.rank, why = peer.gone] {
    if (state_ == State::kEnded) return;
    if (why.code() == Code::kPeerLost) return receiver_->onPeerLost(rank, why);
    receiver_->onPeerLeft(rank);
  });
}

void Node::close(Done done) {
  SLUICE_DCHECK(loop_.inLoop());
  if (state_ == State::kEnded) return done(Status());
  closers_.push_back(std::move(done));
  if (std::exchange(state_, State::kClosing) == State::kClosing) return;
  closeWatch_.start([this] { return lastTaken_; },
                    [weak = weak_from_this()](const Status& why) {
                      const auto node = weak.lock();
                      if (!node) return;
                      node->end(why);
                      node->runNews();
                    });
  driveSoon();
}

// Says goodbye to each rank that has taken all we sent it. Because of that, a goodbye on one lane
// is the last message of all lanes.
void Node::sayGoodbyes() {
  if (state_ != State::kClosing) return;
  for (const auto& each : peers_) {
    if (!each || isSelf(*each) || !each->gone.isOk() || each->saidGoodbye) continue;
    bool hasTalked = each->lastHeard.has_value();
    bool isFlushed = true;
    for (const PeerLane& stream : each->streams) {
      hasTalked = hasTalked || stream.nextToSend > 0;
      isFlushed = isFlushed && stream.isFlushed();
    }
    if (!hasTalked || !isFlushed) continue;
    each->saidGoodbye = true;
    PeerLane& stream = each->stream(Lane::kControl);
    stream.queue.push_back({makeGoodbye(options_.epoch, options_.rank, each->rank, Lane::kControl,
                                        stream.nextToSend++),
                            {},
                            nullptr});
    startSends(*each, Lane::kControl);
  }
}

void Node::endIfFlushed() {
  if (state_ != State::kClosing) return;
  for (const auto& each : peers_) {
    if (!each) continue;
    if (!each->isIdle()) return;
    for (const PeerLane& stream : each->streams) {
      if (!stream.isFlushed() || (isSelf(*each) && !stream.waiting.empty())) return;
    }
  }
  end(Status());
}

void Node::abort() {
  SLUICE_DCHECK(loop_.inLoop());
  SLUICE_CHECK(!isInsideUcx_, "a fabric must not be destroyed from inside Receiver::onMessage()");
  end(closedStatus());
  runNews();
}

void Node::end(const Status& result) {
  if (std::exchange(state_, State::kEnded) == State::kEnded) return;
  closeWatch_.stop();
  if (!result.isOk()) settleConnections();
  for (const auto& each : peers_) {
    if (!each) continue;
    each->isNewsDue = false;
    if (each->gone.isOk()) each->gone = closedStatus();
    for (PeerLane& stream : each->streams) {
      for (auto& [sequence, message] : stream.waiting) {
        if (message.senderDone) {
          news_.emplace_back([done = std::move(message.senderDone)] { done(closedStatus()); });
        }
      }
    }
    cutOff(*each);
  }
  // The worker goes before any completion is told, since until then UCX may still read or write
  // the buffers that a completion gives back.
  letGoOfUcx();
  for (auto& done : std::exchange(closers_, {})) {
    news_.emplace_back([done = std::move(done), result] { done(result); });
  }
  news_.emplace_back([this] { hasEnded_ = true; });
}

// UCX 1.13 aborts the process when an endpoint is closed before its answer to the other side's
// first greeting has left. So a connection that is young is given the time to finish its greetings.
void Node::settleConnections() {
  constexpr auto kYoung = std::chrono::seconds(1);
  const bool isAnyYoung = lastConnected_ && loop_.now() - *lastConnected_ < kYoung;
  if (isAnyYoung) progressUntil([] { return false; }, kQuiet);
}

// Moves UCX on, on this thread, until `isDone()`, until nothing has come for `quiet`, or until
// patience ends.
template <typename IsDone>
void Node::progressUntil(IsDone isDone, std::chrono::milliseconds quiet) {
  const TimePoint until = loop_.now() + kPatienceWithUcx;
  while (!isDone() && loop_.now() < until) {
    if (library().ucp_worker_progress(worker_->get()) != 0 ||
        library().ucp_worker_arm(worker_->get()) != UCS_OK)
      continue;
    pollfd event{.fd = eventFd_, .events = POLLIN, .revents = 0};
    if (::poll(&event, 1, static_cast<int>(quiet.count())) == 0) return;
  }
}

void Node::letGoOfUcx() {
  if (receiver_ != nullptr) loop_.unwatch(eventFd_);
  progressUntil(
      [&] {
        for (const auto& each : peers_) {
          if (each && !each->isIdle()) return false;
        }
        return true;
      },
      kPatienceWithUcx);
  worker_.reset();  // from here on UCX touches no memory of ours
  for (const auto& each : peers_) {
    if (!each) continue;
    while (!each->flying.empty()) sendEnded(each->flying.front(), UCS_ERR_CANCELED);
    while (!each->fetching.empty()) fetchEnded(each->fetching.front(), UCS_ERR_CANCELED);
  }
}

}  // namespace sluice::fabric::ucx
