// The parts behind a Session (sluice/session.h): a trainer, its observers, and its end together
// with the other ranks' trainers.
//
// In a forked child of this rank's process isHere() is false and checkProcess() says so; nothing
// else may be called there.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include <sluice/observer.h>
#include <sluice/session.h>

#include <sluice/session/device_path.h>
#include <sluice/session/elastic/epochs.h>
#include <sluice/session/flight_log.h>
#include <sluice/session/job_parts.h>
#include <sluice/session/metering.h>
#include <sluice/session/tracing.h>
#include <sluice/session/trainer.h>

namespace sluice::session {

// Several observers of the path of slices as one. Filled before training, then only read.
class Observers final : public StageObserver {
 public:
  // REQUIRES: the observer outlives this.
  void add(StageObserver& observer) { all_.push_back(&observer); }

  // Returns the observer to hand out: null if the list is empty, so that nothing needs to be
  // reported.
  StageObserver* orNull() { return all_.empty() ? nullptr : this; }

  void onStage(const StageEvent& event) override {
    for (auto* each : all_) each->onStage(event);
  }
  void onWait(const WaitEvent& event) override {
    for (auto* each : all_) each->onWait(event);
  }
  void onWaitBegins(const WaitEvent& event) override {
    for (auto* each : all_) each->onWaitBegins(event);
  }
  void onWaitFails(const WaitEvent& event, const Status& why) override {
    for (auto* each : all_) each->onWaitFails(event, why);
  }

 private:
  std::vector<StageObserver*> all_;
};

class SessionParts final {
 public:
  // Returns a session when every rank has opened its own and all agree on the plan; otherwise an
  // error that says why not. `collective` reduces on the job's loop, for algorithms that
  // all-reduce; if it is null, sluice itself reduces. REQUIRES: `job`, the observer, `collective`
  // and memory without an owner outlive the session.
  static Result<std::unique_ptr<SessionParts>> open(JobParts& job, SessionOptions options,
                                                    collective::Collective* collective = nullptr);
  ~SessionParts();

  // Does what Job::gather() does, between two steps. If a rank is seen to have gone on without it,
  // an error names that rank at once. REQUIRES: no rank begins the next step before it has heard
  // from all others that they have the answer.
  Result<std::vector<std::string>> gather(const std::string& key, const std::string& value);

  // Ends the session in good order: every rank calls it after its last step, and it returns when
  // all have. A rank that only serves calls it at once, and so serves until the workers are done. A
  // rank that is still in a step without this one gets an error that says so.
  Status leave();

  // Tells the others that this rank takes part in no further step and no further broadcast: their
  // waits for one end with an error that names this rank. leave() does so too; call this if other
  // work comes before it. `reason`, as in "has frozen 'fc.weight'", says why this rank does what the
  // others have to do too; empty: it has made its last step.
  Status announceEnd(const std::string& reason = {});

  // Ends the session in bad order: the other ranks' waits end with `why`, and this rank's name.
  void abandon(const std::string& why);

  // As Session's, on this rank's own process only.
  Status wait(TensorId tensor);
  Status waitAll();
  bool isReady(TensorId tensor) const;
  Status restore(std::span<const std::byte> state);

  bool isWorker() const;
  Rank rank() const { return job_.rank(); }
  const plan::Plan& plan() const { return trainer_->plan(); }

  bool isHere() const { return !process_.isInherited(); }
  Status checkProcess() const { return job_.checkProcess(); }
  Trainer& trainer() { return *trainer_; }
  // Moves the session from one epoch to the next when members are lost; null in a job that ends
  // with its first loss.
  const Epochs* epochs() const { return epochs_.get(); }
  // Null if the session has no device, in which case gradients and results lie in host memory
  // anyway.
  DevicePath* devicePath() { return devicePath_.get(); }

 private:
  SessionParts(JobParts& job, std::string name, base::Config config)
      : job_(job), name_(std::move(name)), config_(std::move(config)) {}
  Result<std::unique_ptr<fabric::Fabric>> connect(Trainer& trainer);
  void listenForTheEnd();
  void exchangeDone();

  JobParts& job_;
  const std::string name_;
  const base::Config config_;  // the job's, with the session's own settings
  const base::ProcessMark process_;
  // The observers outlive the trainer, which reports to them.
  base::HomePtr<Tracing> tracing_;    // null: no trace is wanted
  base::HomePtr<Metering> metering_;  // null: the job serves no metrics
  base::HomePtr<FlightLog> flight_;   // null: the job has no flight recorder
  Observers observers_;
  base::HomePtr<DevicePath> devicePath_;  // null: no device; receives the trainer's results
  base::HomePtr<Epochs> epochs_;          // null: a lost rank ends the session
  base::HomePtr<Trainer> trainer_;
  fabric::PeerAwareFabric* fabric_ = nullptr;  // the trainer's
  // Used on the loop only. The inner pointer is null before this session has begun, and once it is
  // gone.
  const std::shared_ptr<Trainer*> listener_ = std::make_shared<Trainer*>(nullptr);
};

}  // namespace sluice::session
