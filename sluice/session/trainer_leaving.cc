// The end of a Trainer in good order: it stays as long as others need it.
#include <algorithm>
#include <chrono>
#include <utility>

#include <sluice/base/await.h>
#include <sluice/base/check.h>
#include <sluice/base/log.h>
#include <sluice/session/elastic/epochs.h>
#include <sluice/session/trainer.h>
#include <sluice/transport/fabric/common.h>

namespace sluice::session {
namespace {

// Within this time everybody who talked with a lost rank has missed it.
constexpr auto kToNoticeALoss = std::chrono::seconds(4);

}  // namespace

Status Trainer::leave(const std::function<Status()>& everybodyIsDone) {
  const base::TrainingThread::Call call(training_.thread, base::Doing::kLeaving);
  SLUICE_RETURN_IF_ERROR(settle());
  // The other ranks may still need this one as a server, so the fabric stays until all have
  // said that they are done. Only then does a goodbye mean the end of training and not a loss.
  const Status done = everybodyIsDone();
  if (training_.epochs != nullptr)
    SLUICE_RETURN_IF_ERROR(
        fabric::runAndWait(fabric_->loop(), [this] { training_.epochs->stop(); }));
  if (done.isOk()) return fabric::closeAndWait(*fabric_);
  if (done.code() != Code::kPeerLost) return done;

  bool othersGoOn = false;
  bool theyNeedThisRank = false;
  SLUICE_RETURN_IF_ERROR(fabric::runAndWait(fabric_->loop(), [&] {
    othersGoOn = std::ranges::any_of(training_.plan.roles().workers, [&](Rank worker) {
      return worker != fabric_->rank() && strategy_->losses().goesOnWithout(worker);
    });
    theyNeedThisRank = !strategy_->losses().goesOnWithout(fabric_->rank());
  }));
  const bool isWorker = training_.plan.roles().isWorker(fabric_->rank());
  if (!othersGoOn && isWorker) return done;
  // If the others cannot go on, a rank that only serves stays until it has missed the lost rank
  // itself and told them. If it left at once, they would take it for the lost one.
  if (theyNeedThisRank)
    stayWhileNeeded(othersGoOn ? Duration(base::kAsLongAsItTakes) : Duration(kToNoticeALoss));
  (void)fabric::closeAndWait(*fabric_);
  // By now others may have gone in good order; only the rank that was lost is to be named.
  Status loss;
  SLUICE_RETURN_IF_ERROR(fabric::runAndWait(fabric_->loop(), [&] { loss = survived_; }));
  if (loss.isOk()) loss = done;
  if (!othersGoOn) return loss;
  log("session").warn("rank {} has trained to the end without a rank that was lost: {}",
                      fabric_->rank(), loss.message());
  return base::ok();
}

void Trainer::stayWhileNeeded(Duration atMost) {
  const Status ended = base::awaitStatus(
      fabric_->loop(),
      [&](auto done) {
        whenNotNeeded_ = std::move(done);
        timers_.push_back(fabric_->loop().after(atMost, [this] { stayNoLonger(); }));
        leaveIfNotNeeded();
      },
      training_.interruption);
  if (!ended.isOk())
    log("session").debug("rank {} stays no longer: {}", fabric_->rank(), ended.toString());
}

void Trainer::leaveIfNotNeeded() {
  if (!whenNotNeeded_) return;
  const bool isNeeded = std::ranges::any_of(training_.plan.roles().workers, [this](Rank worker) {
    return worker != fabric_->rank() && !gone_.contains(worker) && !done_.contains(worker);
  });
  if (!isNeeded || !gates_.error().isOk()) stayNoLonger();
}

void Trainer::stayNoLonger() {
  if (whenNotNeeded_) std::exchange(whenNotNeeded_, nullptr)(base::ok());
}

void Trainer::noteDone(Rank worker) {
  SLUICE_DCHECK(fabric_->loop().inLoop());
  done_.insert(worker);
  leaveIfNotNeeded();
}

}  // namespace sluice::session
