// The server's side of an answering engine (answering.h): takes in each worker's parts of the
// slices that this rank serves, and sends the answers. Belongs to the fabric's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <sluice/algorithms/contribution.h>
#include <sluice/algorithms/server/answering_parts.h>
#include <sluice/algorithms/server/server_options.h>
#include <sluice/algorithms/server/update_line.h>
#include <sluice/transport/fabric/deferred_lanes.h>

namespace sluice::algorithms {

class AnsweringServer final {
 public:
  // `onOwnAnswer` is called when the answer to this rank's own worker is in its buffer.
  using OnOwnAnswer = std::function<void(const plan::Slice& slice, uint64_t lag)>;
  AnsweringServer(AnsweringParts& parts, OnOwnAnswer onOwnAnswer);

  bool serves(const plan::Slice& slice) const { return !desks_[index(slice.id)].empty(); }

  // Take messages as fabric::Receiver::onMessage does: a worker's part of a slice, its
  // hyperparameters, and its question what this server holds of a slice.
  Result<fabric::Landing> landPush(const plan::Slice& slice, Rank from, fabric::Lane lane,
                                   const wire::Header& header);
  Result<fabric::Landing> landHyperparameters(Rank from, const wire::Header& header);
  Result<fabric::Landing> landQuestion(const plan::Slice& slice, Rank from, fabric::Lane lane,
                                       const wire::Header& header);

  Result<fabric::Landing> landWord(Rank from, fabric::Lane lane, const wire::Header& header);

  // Takes a part that lies in its buffer: it has landed, or this rank's own worker has put it
  // there. A part that waits for its worker's word is only kept.
  void arrived(const plan::Slice& slice, Rank from, wire::Flags flags);
  // Carry out the worker's word on its parts of `step` that wait. use() takes them in, and later
  // ones at once; drop() discards them, and the worker sends others. Words come in the order of
  // steps.
  void use(Rank worker, Step step);
  void drop(Rank worker);
  void setHyperparameters(Rank worker, Step from, const std::vector<double>& values);

  void forget(Rank lost);
  std::string describeWait(TensorId tensor) const;

 private:
  // One worker's place at one slice.
  struct Desk {
    Step next{};  // of the part that comes next
    bool isLanding = false;
    bool isOwedAnswer = false;
    bool isAnswering = false;           // the answer lies here until it has left
    bool isTelling = false;             // the slice's content is on its way to the worker
    std::optional<wire::Flags> held{};  // of a part that waits for the worker's word
    bool isBusy() const { return isLanding || isAnswering || isTelling; }
  };
  // The words of one worker, besides its parts.
  struct WorkerNews {
    ValuesByStep values;
    uint32_t valuesLanding = 0;  // hyperparameters whose payload is not here yet
    Step undecided{};            // the first step that no word to use it has come for
  };

  void takePart(const plan::Slice& slice, Rank from, wire::Flags flags);
  void takeHeld(Rank worker);
  bool isLandingFrom(Rank worker) const;
  void answer(const plan::Slice& slice, const std::vector<Rank>& workers);
  void answer(const plan::Slice& slice, Rank to);
  void tellHeld(const plan::Slice& slice, Rank to);
  void resume(Rank from);
  WorkerNews& newsOf(Rank worker) { return workers_[parts_.roles().workerPosition(worker)]; }
  const Desk& deskOf(const plan::Slice& slice, Rank worker) const {
    return desks_[index(slice.id)][parts_.roles().workerPosition(worker)];
  }
  Desk& deskOf(const plan::Slice& slice, Rank worker) {
    return desks_[index(slice.id)][parts_.roles().workerPosition(worker)];
  }

  AnsweringParts& parts_;
  const OnOwnAnswer onOwnAnswer_;
  UpdateLine updates_;
  std::vector<std::vector<Desk>>
      desks_;                        // by SliceId, then worker position; empty: served elsewhere
  std::vector<WorkerNews> workers_;  // by worker position
  fabric::DeferredLanes deferred_;   // lanes with a push that waits for hyperparameters or a desk
  std::set<Rank> lost_;              // that this rank has gone on without
};

}  // namespace sluice::algorithms
