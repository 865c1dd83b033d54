// The worker's side of an answering engine (answering.h): sends a part of each slice to its server
// as the policy says, takes the answers, and opens the gates. Belongs to the fabric's loop.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <sluice/algorithms/contribution.h>
#include <sluice/algorithms/server/answering_parts.h>
#include <sluice/algorithms/server/answering_server.h>
#include <sluice/algorithms/server/outcomes.h>
#include <sluice/algorithms/strategy.h>

namespace sluice::algorithms {

class AnsweringWorker final {
 public:
  // `own` is this rank's server, for the slices that it serves itself.
  AnsweringWorker(AnsweringParts& parts, AnsweringServer& own);

  void contribute(const Contribution& contribution);
  // True iff a gradient may be handed over slice by slice, before all of it is here.
  bool takesSlices() const;
  // Begins the slice's step at once. REQUIRES: takesSlices()
  void contributeSlice(const SliceContribution& contribution);
  Status decide(Decision decision);

  // Sets this worker's hyperparameters. It tells every server its own, in a message that goes ahead
  // of the pushes they are for.
  Status setHyperparameters(const std::vector<double>& values, Step from);

  // Takes an answer, as fabric::Receiver::onMessage does.
  Result<fabric::Landing> landAnswer(const plan::Slice& slice, Rank from,
                                     const wire::Header& header);
  // Takes the answer that lies in its buffer.
  void takeAnswer(const plan::Slice& slice, uint64_t lag) { finishSlice(slice, Travel::kAsk, lag); }

  // A part that nobody waits for may still be on its way when every gate is open.
  void whenIdle(const Done& done);
  void fail(const Status& why);

  std::string describeWait(TensorId tensor) const;

 private:
  enum class State : uint8_t {
    kIdle,
    kWaitingToSend,
    kAwaitingWord,  // the part has been sent, and the worker's own step waits for decide()
    kAwaitingAnswer,
    kAnswerLanding
  };
  struct OwnSlice {
    State state = State::kIdle;
    Step step{};  // dropped steps are not counted: nobody has heard of them
    bool hasGradient = false;
    std::vector<std::byte>
        leaving;  // a part that nobody waits for: a copy, so that the gate can open
    bool isLeaving = false;
  };

  void begin(const Contribution& contribution);
  void use(Step step);
  void drop(std::vector<Contribution> sent);
  void dropOnceSent();
  void tellServers(Step step, wire::Flags word);
  bool isUndecided(Step step) const { return parts_.sendsBeforeWord && step >= undecided_; }
  size_t tensorsAtOnce() const {
    return parts_.isOverlapping ? 1 : parts_.plan().model().tensors.size();
  }
  void beginSlice(const plan::Slice& slice, Step step, bool hasGradient);
  void sendOrFinish(const plan::Slice& slice);
  void push(const plan::Slice& slice, Travel travel);
  void left(const plan::Slice& slice, Travel travel);
  void finishSlice(const plan::Slice& slice, Travel travel, uint64_t lag);
  WorkerSlice inItsStep(const plan::Slice& slice) const;
  bool isIdle() const;
  Step withoutDropped(Step step) const { return Step{index(step) - dropped_}; }
  OwnSlice& own(const plan::Slice& slice) { return slices_[index(slice.id)]; }

  AnsweringParts& parts_;
  AnsweringServer& server_;
  // A server takes a part in as it arrives, so an update that has to wait for the training thread's
  // word waits here, before anything has left. With --overlap parts leave and wait at their
  // servers; then these are the step's contributions that the word is for.
  HeldContributions contributions_;
  ValuesByStep values_;
  std::vector<OwnSlice> slices_;  // by SliceId
  Outcomes outcomes_;
  Together<Contribution> toBegin_;
  Together<TensorId> toOpen_;
  std::vector<Done> whenIdle_;
  uint64_t dropped_ = 0;  // steps
  // Used with --overlap only.
  Step undecided_{};                    // the first step that has not been decided to be used
  size_t sending_ = 0;                  // parts whose bytes have not left
  std::vector<Contribution> dropping_;  // a dropped step, some of whose parts have not left
};

}  // namespace sluice::algorithms
