// One model in training over one fabric: gates and strategy put together. Session makes one for
// users; tests make them over a loopback fabric.
//
// Thread safety: what the training thread calls may be called from any thread; the Receiver part
// runs on the fabric's loop.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include <sluice/algorithms/context.h>
#include <sluice/algorithms/result_sink.h>
#include <sluice/algorithms/strategy.h>
#include <sluice/base/config.h>
#include <sluice/data/gate/gates.h>
#include <sluice/data/plan/plan.h>
#include <sluice/session/broadcast.h>
#include <sluice/session/coming_gradients.h>
#include <sluice/session/flight_log.h>
#include <sluice/transport/fabric/deferred_lanes.h>
#include <sluice/transport/fabric/fabric.h>
#include <sluice/transport/fabric/watch/pulse.h>

namespace sluice::session {

class Epochs;

// The model that is trained, and the update that its gradients become.
struct TrainingSpec {
  plan::Plan plan;
  optimizer::OptimizerSpec update;
  // The memory of tensors, by TensorId. Empty at a rank that only serves, and where every gradient
  // brings its memory.
  std::vector<TensorMemory> memory;
  std::function<Status()> interruption{};        // see gate::WaitOptions
  bool updatesWaitForWord = false;               // see algorithms::Context
  collective::Collective* collective = nullptr;  // see algorithms::Context
  const fabric::Pulse* pulse = nullptr;          // may be null: nobody says how busy it is
  algorithms::ResultSink* results = nullptr;     // see algorithms::Context; outlives the trainer
  Epochs* epochs = nullptr;     // null: a lost rank ends training; outlives the trainer
  FlightLog* flight = nullptr;  // null: nobody records what goes wrong; outlives the trainer
  base::TrainingThread* thread = nullptr;  // is told of waits; may be null; outlives the trainer
};

class Trainer final : public fabric::Receiver {
 public:
  // Makes the fabric, given who receives. Messages that arrive before the strategy is there wait at
  // their sender.
  using MakeFabric = std::function<Result<std::unique_ptr<fabric::Fabric>>(Trainer&)>;

  // All ranks begin with the parameters of the lowest worker, if the update publishes parameters.
  // REQUIRES: config and observer (may be null) outlive the trainer; the tensors' memory, where it
  // is given here, stays where it is, and is not touched while this runs.
  static Result<std::unique_ptr<Trainer>> start(TrainingSpec training, const base::Config& config,
                                                StageObserver* observer,
                                                const MakeFabric& makeFabric);

  // Destroying a trainer without leave() looks like a crash to the other ranks, unless another rank
  // was lost before.
  ~Trainer() override;

  // Hands over the gradient of the tensor's next step, which must stay in its memory until wait()
  // returns. An error if the result of the tensor's last step is not here yet. After a failure of
  // the session nothing happens, and wait() says why.
  Status gradientReady(TensorId tensor);

  // Hands over a gradient that lies elsewhere in every step: `memory` stays until wait() returns.
  // After an error of wait() bytes may still come for it, so its owner is kept until no byte can
  // come, or until this is gone.
  Status gradientReady(TensorId tensor, const TensorMemory& memory);

  // The gradient of the tensor's next step comes slice by slice, to `memory`: a mirror in host
  // memory of a gradient on a device. slicesReady() says which slices are there. Otherwise as
  // gradientReady(). If the algorithm has a target for the gradient, it comes there instead:
  // `toTarget` is told of the target, on the loop. After a failure of the session it is not.
  using ToTarget = std::function<void(std::span<std::byte> target)>;
  Status gradientComes(TensorId tensor, const TensorMemory& memory, const ToTarget& toTarget = {});
  // True iff the algorithm has a target for the tensor's gradient in every step.
  bool hasTargetFor(TensorId tensor) const { return strategy_->stagingTargets().has(tensor); }

  // The bytes of `count` slices of a gradient that comes, from number `first` of the tensor's
  // slices on (plan().slicesOf()), are in their place. They must not change until wait() returns.
  // `begun` is when their copying began, for traces; without it, when the gradient was announced.
  // After a failure of the session nothing happens. Any thread, until this is destroyed. REQUIRES:
  // gradientComes() has returned ok before, and every slice is there once in each step.
  void slicesReady(TensorId tensor, size_t first, size_t count,
                   std::optional<TimePoint> begun = std::nullopt);

  // Hands over zeros: this rank has no gradient for the tensor in its next step. The others' result
  // lands in `result`; if no rank has a gradient, isEmpty() is true after wait(), and `result` has
  // not changed.
  Status gradientAbsent(TensorId tensor, std::span<std::byte> result,
                        std::shared_ptr<const void> owner = nullptr);

  // Returns when the result of the tensor's last step is in its memory, or why it never will be.
  Status wait(TensorId tensor) { return gates_.wait(tensor); }
  Status waitAll() { return gates_.waitAll(); }
  bool isReady(TensorId tensor) const { return gates_.isOpen(tensor); }
  bool isEmpty(TensorId tensor) const { return gates_.isEmpty(tensor); }

  // Copies the root's bytes to everybody's `data`. Every rank calls it, in the same order. Once it
  // has returned, with an error or without, nobody is at work on `data` any more.
  Status broadcast(Rank root, std::span<std::byte> data);

  // broadcast() in two parts. An interrupted end can be called again: the broadcast has gone on
  // meanwhile.
  struct BroadcastUnderway {
    Rank root;
    SharedBytes bytes;
    std::shared_future<Status> ended;
  };
  BroadcastUnderway beginBroadcast(Rank root, std::span<const std::byte> data);
  Status endBroadcast(const BroadcastUnderway& underway, std::span<std::byte> data);
  Result<uint64_t> broadcastsBegun();

  // Sets the hyperparameters of the update on servers, from the next step on: not for a step with a
  // first gradient already handed over. Every worker says the same; ranks that only serve are told.
  Status setHyperparameters(std::vector<double> values);

  // For updates that wait for a word: every gradient of this step has been handed over, or comes
  // (then the word waits for the last slice). They become an update with these hyperparameters, or
  // nothing (wait() then finds every tensor empty). Every worker says the same.
  Status update(std::vector<double> values);
  void drop();

  // For delayed results (pipe): returns how many there are, and puts the oldest of them into
  // `result`, for a step without gradients. Every tensor's is taken, then waited for.
  Result<size_t> delayed();
  Status handOutDelayed(TensorId tensor, std::span<std::byte> result,
                        std::shared_ptr<const void> owner = nullptr);
  // Hands out all delayed results, into the tensors' memory: after the last step, every gradient
  // has been used. REQUIRES: the memory was given at the start.
  Status drain();

  // Returns the state that this rank has to keep in a checkpoint besides parameters, which are the
  // caller's: delayed gradients, what codecs owe, and the optimizer's state if it is here. Waits
  // for what is on its way, and applies nothing. Put back between two steps, on every rank its own.
  // If servers do not wait for all workers it holds their model too, and with asp and ssp this
  // worker's parameters become that model, now as when it is put back.
  Result<std::vector<std::byte>> takeState();
  Status restore(std::span<const std::byte> state);

  // Returns the other workers that are seen to be in the next step already, between two steps of
  // this rank.
  Result<std::set<Rank>> ahead();

  // Do what gate::Gates and Broadcast do, for news of other ranks that come from outside the
  // fabric.
  uint64_t stepsBegun() const { return gates_.stepsBegun(); }
  void endAfter(uint64_t steps, uint64_t broadcasts, const Status& why);

  // Ends every wait, now and later, with `why`.
  void fail(const Status& why);
  // Returns why every wait ends; ok if nothing has failed. Any thread.
  Status failure() const { return gates_.error(); }

  // Ends in good order: waits for every gate, then for `everybodyIsDone` to say that the other
  // ranks have got that far too (until then they may need this one as a server), and says goodbye.
  // If a rank is lost and the others go on without it, they may still need this rank: then it stays
  // until each is done (noteDone()) or gone, and logs who was lost. The result is ok: this rank has
  // trained to its end.
  Status leave(const std::function<Status()>& everybodyIsDone);

  // Notes that this worker has made its last step. Loop thread only.
  void noteDone(Rank worker);

  // True iff the rank was lost or has left. Loop thread only.
  bool isGone(Rank rank) const { return gone_.contains(rank); }

  // The observer, for whoever copies results to a device and reports that they are applied; may be
  // null. Any thread.
  StageObserver* observer() const { return observer_; }

  // Forgets what was known of ranks, since they have changed. Loop thread only.
  void onNewRanks();

  Result<algorithms::Statistics> statistics(Duration atMost);
  fabric::Counters counters() const { return fabric_->counters(); }
  const plan::Plan& plan() const { return training_.plan; }
  // Empty if each gradient brings its own memory when it is handed over, and at a rank that only
  // serves.
  const std::vector<TensorMemory>& givenMemory() const { return training_.memory; }
  const std::function<Status()>& interruption() const { return training_.interruption; }

  Result<fabric::Landing> onMessage(Rank from, fabric::Lane lane,
                                    const wire::Header& header) override;
  void onPeerLost(Rank from, const Status& why) override;
  void onPeerLeft(Rank from) override;

 private:
  Trainer(TrainingSpec training, const base::Config& config, StageObserver* observer);

  Status begin();
  Result<std::unique_ptr<algorithms::Strategy>> makeStrategy(
      std::span<const std::span<const std::byte>> firstParameters);
  void resumeDeferred();
  Status settle();
  Status awaitStrategy(const std::function<void(const algorithms::Done&)>& begin,
                       std::string_view failure);
  Status handOver(TensorId tensor, std::function<void(Step)> toStrategy);
  void takeSlices(TensorId tensor, size_t first, size_t count, std::optional<TimePoint> begun);
  std::string describeWait(TensorId tensor) const;
  std::string describeBusy() const;
  // Any thread.
  std::string describeOthers() const;
  void reportLongWait(std::string_view place, Duration waited) const;
  void reportStall(TensorId tensor, Step step, Duration waited);
  void refused(Rank from, const Status& why);
  void expectEndAfter(Rank left);
  void stayWhileNeeded(Duration atMost);
  void leaveIfNotNeeded();
  void stayNoLonger();

  const TrainingSpec training_;
  std::vector<TensorMemory> memory_;  // by TensorId; changed on the loop only
  const base::Config& config_;
  StageObserver* const observer_;
  gate::Gates gates_;
  // Declared before the fabric, so that they go after it: its last completions find them alive.
  std::unique_ptr<Broadcast> broadcast_;
  std::unique_ptr<algorithms::Strategy> strategy_;
  std::unique_ptr<fabric::Fabric> fabric_;

  // Loop only.
  ComingGradients coming_;
  fabric::DeferredLanes deferred_;  // lanes whose message came before anybody could take it
  std::vector<TimerId> timers_;     // that would outlive this
  std::set<Rank> gone_;
  std::set<Rank> refused_;  // ranks that are given up for a message
  std::set<Rank> done_;  // workers that need no server any more, as far as this rank has been told
  Status survived_;      // the first loss that this rank has gone on after
  algorithms::Done whenNotNeeded_;  // null: nobody stays
  bool isEnding_ = false;
};

}  // namespace sluice::session
