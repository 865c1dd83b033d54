// Progress and wake-ups. UCX's event descriptor speaks only after ucp_worker_arm(), and arming is
// refused while there is something to do; so drive() makes progress until nothing moves, arms, and
// on refusal starts again. Code that gives UCX work afterwards (a send, an answer) asks for one
// more round, since it may have made events that the armed descriptor does not tell.
#include <utility>

#include <sluice/base/check.h>
#include <sluice/base/log.h>
#include <sluice/transport/fabric/ucx/library.h>
#include <sluice/transport/fabric/ucx/node.h>
#include <sluice/transport/fabric/ucx/ucs_status.h>

namespace sluice::fabric::ucx {
namespace {

// After this many rounds the loop's other tasks have their turn, new sends among them.
constexpr int kRoundsAtOnce = 32;

}  // namespace

void Node::driveSoon() {
  if (std::exchange(isDriveDue_, true)) return;
  loop_.post([self = shared_from_this()] { self->drive(); });
}

void Node::drive() {
  SLUICE_DCHECK(loop_.inLoop());
  const auto self = shared_from_this();  // the user's callbacks may destroy the fabric
  isDriveDue_ = false;
  for (int round = 0; state_ != State::kEnded; ++round) {
    if (round == kRoundsAtOnce) return driveSoon();
    const bool moved = progress();
    runNews();
    if (moved || state_ == State::kEnded) continue;
    // Acknowledgements are sent when nothing else moves, so one of them covers all that a burst
    // has brought. Arming comes last: an event after it would not be told, and UCX refuses it
    // if there is one already.
    tellAllTaken();
    const ucs_status_t status = library().ucp_worker_arm(worker_->get());
    if (status == UCS_OK) return;
    if (status == UCS_ERR_BUSY) continue;
    // Without wake-ups the worker is asked in every round of the loop instead.
    if (!hasLostWakeUps_)
      log("fabric").error("{}", fromUcs(status, "cannot arm UCX's wake-up").message());
    hasLostWakeUps_ = true;
    return driveSoon();
  }
}

// Drives UCX for one round; true iff something moved.
bool Node::progress() {
  // Callbacks of UCX only note what they have learnt. It is acted upon here, after UCX has
  // returned: no endpoint may be closed inside UCX's own call.
  SLUICE_CHECK(!isInsideUcx_);
  isInsideUcx_ = true;
  const bool moved = library().ucp_worker_progress(worker_->get()) != 0;
  isInsideUcx_ = false;
  handleLeftovers();
  sayGoodbyes();
  endIfFlushed();
  return moved;
}

void Node::handleLeftovers() {
  for (const auto& [rank, lane] : std::exchange(contacts_, {})) endpoint(peer(rank), lane);
  for (const Rank rank : std::exchange(farewells_, {})) peerLeft(peer(rank));
  for (const auto& [rank, why] : std::exchange(broken_, {})) peerLost(peer(rank), why);
}

void Node::runNews() {
  while (!news_.empty()) {
    const Task next = std::move(news_.front());
    news_.pop_front();
    next();
  }
}

}  // namespace sluice::fabric::ucx
