// The parts behind a Session (sluice/session.h): a trainer, what looks at it, and how it ends
// together with the other ranks'.
//
// In a forked child of this rank's process isHere() is false and checkProcess() says so; nothing
// else may be called there.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <sluice/session.h>

#include <sluice/fabric/watch/watched_fabric.h>
#include <sluice/session/job_parts.h>
#include <sluice/session/metering.h>
#include <sluice/session/observers.h>
#include <sluice/session/tracing.h>
#include <sluice/session/trainer.h>

namespace sluice::session {

class SessionParts final {
 public:
  // Returns when every rank has opened its own and all agree on the plan, or why not. REQUIRES:
  // `job`, the observer and the tensors' memory, unless it has an owner, outlive the session.
  // `collective` reduces, for algorithms that all-reduce, on the job's loop; null: sluice itself.
  // It outlives the session.
  static Result<std::unique_ptr<SessionParts>> open(JobParts& job, SessionOptions options,
                                                    collective::Collective* collective = nullptr);
  ~SessionParts();

  // As Job::gather(), between two steps. A rank that is seen to have gone on without it is named at
  // once. REQUIRES: nobody begins the next step before it has heard from all others that they have
  // the answer.
  Result<std::vector<std::string>> gather(const std::string& key, const std::string& value);

  // Ends in good order, together: every rank calls it after its last step, and it returns when all
  // have. A rank that only serves calls it at once, and so serves until the workers are done. A
  // rank that is still in a step which this one has not taken part in is told so.
  Status leave();

  // Tells the others that this rank takes part in no further step and no further broadcast: whoever
  // of them waits for one ends with its name. leave() says so too; this is for who has something
  // else to do before.
  Status announceEnd();

  // Ends in bad order: the other ranks' waits end with `why`, and this rank's name.
  void abandon(const std::string& why);

  bool isWorker() const;
  Rank rank() const { return job_.rank(); }
  const plan::Plan& plan() const { return trainer_->plan(); }

  bool isHere() const { return !process_.isInherited(); }
  Status checkProcess() const { return job_.checkProcess(); }
  Trainer& trainer() { return *trainer_; }

 private:
  SessionParts(JobParts& job, std::string name) : job_(job), name_(std::move(name)) {}
  void listenForTheEnd();
  void exchangeDone();

  JobParts& job_;
  const std::string name_;
  const base::ProcessMark process_;
  // Outlive the trainer, which tells them what happens.
  base::HomePtr<Tracing> tracing_;    // null: no trace is wanted
  base::HomePtr<Metering> metering_;  // null: the job serves no metrics
  Observers observers_;
  base::HomePtr<Trainer> trainer_;
  fabric::WatchedFabric* fabric_ = nullptr;  // the trainer's
  // Loop only; null before this session has begun, and once it is gone.
  const std::shared_ptr<Trainer*> listener_ = std::make_shared<Trainer*>(nullptr);
};

}  // namespace sluice::session
