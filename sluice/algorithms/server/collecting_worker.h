// The worker's side of a collecting engine (collecting.h): pushes each slice of a gradient to its
// server, takes the results, and opens the gates. It has the server of its rank, for the slices
// that this rank serves. Belongs to the fabric's loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sluice/algorithms/contribution.h>
#include <sluice/algorithms/server/collecting_parts.h>
#include <sluice/algorithms/server/collecting_server.h>
#include <sluice/algorithms/server/outcomes.h>
#include <sluice/algorithms/strategy.h>
#include <sluice/transport/fabric/deferred_lanes.h>

namespace sluice::algorithms {

class CollectingWorker : public Strategy {
 public:
  void contribute(const Contribution& contribution) final;
  // Pushes the slice at once, unless nothing may be pushed before backward has ended.
  void contributeSlice(const SliceContribution& contribution) final;
  Status decide(Decision decision) final;
  std::string describeWait(TensorId tensor) const final;

 protected:
  CollectingWorker(const Facets& facets, const Context& context, const ServerStyle& style,
                   std::unique_ptr<shard::Shard> shard)
      : Strategy(facets),
        parts_(context, style),
        server_(parts_, std::move(shard),
                [this](const plan::Slice& slice, bool isEmpty) { takeResult(slice, isEmpty); }),
        slices_(parts_.plan().slices().size()),
        unnotified_(tensorCount()),
        outcomes_(parts_.context),
        toPush_(parts_.isOverlapping ? 1 : tensorCount()),
        toOpen_(parts_.isOverlapping ? 1 : tensorCount()) {}

  // Take messages as fabric::Receiver::onMessage does.
  Result<fabric::Landing> landNotice(const plan::Slice& slice, Rank from,
                                     const wire::Header& header);
  Result<fabric::Landing> landResult(const plan::Slice& slice, Rank from, fabric::Lane lane,
                                     const wire::Header& header);

  CollectingParts parts_;
  CollectingServer server_;

 private:
  enum class State : uint8_t { kIdle, kAwaited, kLanding };
  struct OwnSlice {
    State state = State::kIdle;
    Step step{};
    bool isNotified = false;  // the server has said that the result is ready
  };
  // A part of a slice that this rank serves, until its update is decided on.
  struct HeldPart {
    SliceId slice{};
    Step step{};
    OwnPart part{};
  };

  // Takes a result that lies in its place; `isEmpty` if no worker had a gradient.
  void takeResult(const plan::Slice& slice, bool isEmpty);
  void begin(TensorId tensor, Step step, size_t slices);
  // Notes that a result is ready at its server, or, if this rank serves the slice, in its place.
  void takeNotice(const plan::Slice& slice, Step step);
  void pull(const plan::Slice& slice, Step step);
  void expectResult(const plan::Slice& slice, Step step);
  size_t tensorCount() const { return parts_.plan().model().tensors.size(); }
  void push(const plan::Slice& slice, Step step);
  void pushNothing(const plan::Slice& slice, Step step);
  void contributeOwn(const plan::Slice& slice, Step step, OwnPart part);
  void takeDecided();
  Status expectFrom(const plan::Slice& slice, Rank from, const wire::Header& header) const;

  std::vector<OwnSlice> slices_;    // by SliceId
  std::vector<size_t> unnotified_;  // by TensorId: slices whose results are not ready
  Outcomes outcomes_;
  Together<Contribution> toPush_;
  Together<TensorId> toOpen_;
  std::optional<Step> undecided_;   // being handed over, or to be decided on
  fabric::DeferredLanes deferred_;  // lanes with results for that step
  std::vector<HeldPart> held_;      // in the order of backward: own parts that wait for decide()
  std::vector<HeldPart> decided_;   // the same, once decided
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>();  // for what is posted
};

}  // namespace sluice::algorithms
