// The server's side of a collecting engine (collecting.h): collects all workers' parts of each
// slice that this rank serves, lets the shard reduce and update, and answers. Belongs to the
// fabric's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <sluice/algorithms/server/collecting_parts.h>
#include <sluice/algorithms/server/server_options.h>
#include <sluice/algorithms/server/update_line.h>
#include <sluice/data/shard/shard.h>
#include <sluice/transport/fabric/deferred_lanes.h>

namespace sluice::algorithms {

// The part of this rank's own worker in a slice that this rank serves.
enum class OwnPart : uint8_t { kGradient, kNothing, kVeto };

class CollectingServer final {
 public:
  // `onOwnResult` is called when this rank's own worker has its result in place; `isEmpty`: no
  // worker had a gradient.
  using OnOwnResult = std::function<void(const plan::Slice& slice, bool isEmpty)>;
  CollectingServer(CollectingParts& parts, std::unique_ptr<shard::Shard> shard,
                   OnOwnResult onOwnResult)
      : parts_(parts),
        shard_(std::move(shard)),
        onOwnResult_(std::move(onOwnResult)),
        updates_(parts.context.fabric.loop(), updateRate(parts.context.config),
                 parts.style.egress.order) {}

  // Take messages as fabric::Receiver::onMessage does.
  Result<fabric::Landing> landPush(const plan::Slice& slice, Rank from, fabric::Lane lane,
                                   const wire::Header& header);
  Result<fabric::Landing> landPull(const plan::Slice& slice, Rank from, const wire::Header& header);
  Result<fabric::Landing> landHyperparameters(Rank from, const wire::Header& header);

  // Takes the part of this rank's own worker.
  void takeOwn(const plan::Slice& slice, Step step, OwnPart part);

  // Sets them for this rank's shard; the first worker also tells the ranks that only serve, in a
  // message that no push of that worker can overtake: it goes ahead of them on both lanes that
  // pushes take (a push without a gradient is a word). A slice needs that worker's push to be
  // finished, so it is never finished with the wrong values. The messages are numbered, since the
  // lanes may pass each other.
  Status setHyperparameters(const std::vector<double>& values, Step from);

  shard::Shard& shard() { return *shard_; }
  const shard::Shard& shard() const { return *shard_; }
  std::string describeWait(TensorId tensor) const;

 private:
  void finish(const plan::Slice& slice, Step step);
  void answerAll(const plan::Slice& slice, Step step);
  void publish(const plan::Slice& slice, Step step, Rank to);
  Rank firstWorker() const { return parts_.roles().workers.front(); }

  CollectingParts& parts_;
  const std::unique_ptr<shard::Shard> shard_;
  const OnOwnResult onOwnResult_;
  UpdateLine updates_;
  std::map<std::pair<SliceId, Rank>, Step> notices_;  // results that these workers may pull, once
  uint32_t valuesSaid_ = 0;         // the number of times that hyperparameters were set
  uint32_t valuesLanding_ = 0;      // messages with hyperparameters whose payload is not here yet
  fabric::DeferredLanes deferred_;  // lanes with pushes of the first worker that wait for them
};

}  // namespace sluice::algorithms
