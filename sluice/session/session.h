// The public C++ API: one model, trained together with the other ranks of the job.
//
//   auto job = Job::join(config, base::processEnvironment()).value();
//   auto session = Session::open(*job, {.model = model, .memory = memory, .update = "sgd:lr=0.1"}).value();
//   for (...) {
//     for (TensorId t : forwardOrder) { session->wait(t); forward(t); }      // each layer waits for its own
//     for (TensorId t : backwardOrder) { backward(t); good = session->gradientReady(t).isOk(); }
//   }
//   session->leave();
//
// gradientReady() returns at once. wait(t) returns when what the next forward pass needs of tensor t is here:
// with an update on the servers the new parameters, with "mean-gradient" the mean over all workers.
//
// Memory: a wait() that ends with an error says nothing about the tensors' memory, since other ranks may
// still be sending into it. Give memory an owner (TensorMemory::owner), which the session holds until no byte
// can come any more, or keep it until the session is gone.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <sluice/fabric/common.h>
#include <sluice/fabric/watch/watched_fabric.h>
#include <sluice/session/job.h>
#include <sluice/session/metering.h>
#include <sluice/session/observers.h>
#include <sluice/session/tracing.h>
#include <sluice/session/trainer.h>

namespace sluice::session {

struct Request {
  plan::Model model;  // tensors in forward order; the same on every rank
  // By tensor. Empty at a rank that only serves, and where every gradient brings its own memory.
  std::vector<strategy::TensorMemory> memory{};
  std::string update = "mean-gradient";  // what servers do with the mean: shard/optimizer_spec.h
  std::string name = "model";            // tells several sessions of one job apart
  std::string algorithm{};               // empty: the job's
  plan::StageObserver* observer = nullptr;
  // True: what servers do with a step waits for the training thread's update() or drop().
  bool updatesWaitForWord = false;
  std::function<Status()> interruption{};  // asked while a thread waits, so that Ctrl-C ends a wait
  // Who reduces, for algorithms that all-reduce, on the job's loop; null: sluice itself. Outlives the
  // session.
  collective::Collective* collective = nullptr;
};

class Session final {
 public:
  // Returns when every rank has opened its own and all agree on the plan, or why not.
  // REQUIRES: `job`, the observer and the tensors' memory, unless it has an owner, outlive the session.
  static Result<std::unique_ptr<Session>> open(Job& job, Request request);
  ~Session();

  // In a forked child of this rank's process every call that can fail does (Job::checkProcess), and the
  // others do nothing.
  Status gradientReady(TensorId tensor) {
    return isHere() ? trainer_->gradientReady(tensor) : job_.checkProcess();
  }
  Status gradientReady(TensorId tensor, const strategy::TensorMemory& memory) {
    return isHere() ? trainer_->gradientReady(tensor, memory) : job_.checkProcess();
  }
  Status gradientAbsent(TensorId tensor, std::span<std::byte> result,
                        std::shared_ptr<const void> owner = nullptr) {
    return isHere() ? trainer_->gradientAbsent(tensor, result, std::move(owner)) : job_.checkProcess();
  }
  Status wait(TensorId tensor) { return isHere() ? trainer_->wait(tensor) : job_.checkProcess(); }
  Status waitAll() { return isHere() ? trainer_->waitAll() : job_.checkProcess(); }
  bool isReady(TensorId tensor) const { return isHere() && trainer_->isReady(tensor); }
  bool isEmpty(TensorId tensor) const { return isHere() && trainer_->isEmpty(tensor); }
  Status setHyperparameters(std::vector<double> values) {
    return isHere() ? trainer_->setHyperparameters(std::move(values)) : job_.checkProcess();
  }
  Status update(std::vector<double> values) {
    return isHere() ? trainer_->update(std::move(values)) : job_.checkProcess();
  }
  void drop() {
    if (isHere()) trainer_->drop();
  }
  Result<size_t> delayed() {
    SLUICE_RETURN_IF_ERROR(job_.checkProcess());
    return trainer_->delayed();
  }
  Status handOutDelayed(TensorId tensor, std::span<std::byte> result,
                        std::shared_ptr<const void> owner = nullptr) {
    return isHere() ? trainer_->handOutDelayed(tensor, result, std::move(owner)) : job_.checkProcess();
  }
  Status drain() { return isHere() ? trainer_->drain() : job_.checkProcess(); }
  Result<std::vector<std::byte>> state() {
    SLUICE_RETURN_IF_ERROR(job_.checkProcess());
    return trainer_->state();
  }
  Status restore(std::span<const std::byte> state) {
    return isHere() ? trainer_->restore(state) : job_.checkProcess();
  }
  // As Job::gather(), between two steps. A rank that is seen to have gone on without it is named at once.
  // REQUIRES: nobody begins the next step before it has heard from all others that they have the answer.
  Result<std::vector<std::string>> gather(const std::string& key, const std::string& value);
  Status broadcast(Rank root, std::span<std::byte> data) {
    return isHere() ? trainer_->broadcast(root, data) : job_.checkProcess();
  }
  // REQUIRES: not in a forked child.
  Trainer::BroadcastUnderway beginBroadcast(Rank root, std::span<const std::byte> data) {
    return trainer_->beginBroadcast(root, data);
  }
  Status endBroadcast(const Trainer::BroadcastUnderway& underway, std::span<std::byte> data) {
    return trainer_->endBroadcast(underway, data);
  }

  // Ends in good order, together: every rank calls it after its last step, and it returns when all have. A
  // rank that only serves calls it at once, and so serves until the workers are done. A rank that is still in
  // a step which this one has not taken part in is told so.
  Status leave();

  // Tells the others that this rank takes part in no further step and no further broadcast: whoever of them
  // waits for one ends with its name. leave() says so too; this is for who has something else to do before.
  Status announceEnd();

  // Ends in bad order: the other ranks' waits end with `why`, and this rank's name.
  void abandon(const std::string& why);

  bool isWorker() const;
  Rank rank() const { return job_.rank(); }
  const plan::Plan& plan() const { return trainer_->plan(); }
  Result<strategy::Statistics> statistics() {
    SLUICE_RETURN_IF_ERROR(job_.checkProcess());
    return trainer_->statistics(fabric::kLoopLimit);
  }
  fabric::Counters counters() const { return trainer_->counters(); }

 private:
  Session(Job& job, std::string name) : job_(job), name_(std::move(name)) {}
  bool isHere() const { return !process_.isInherited(); }
  void listenForTheEnd();
  void exchangeDone();

  Job& job_;
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
