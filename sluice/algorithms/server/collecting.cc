#include <sluice/algorithms/server/collecting.h>

#include <utility>

#include <sluice/algorithms/server/collecting_server.h>
#include <sluice/algorithms/server/collecting_worker.h>
#include <sluice/algorithms/slices.h>
#include <sluice/algorithms/words.h>
#include <sluice/base/check.h>

namespace sluice::algorithms {
namespace {

// A worker with the server of its rank: tells the messages of the two apart, and keeps their state.
class Collecting final : public CollectingWorker, private Checkpoint, private Takeover {
 public:
  Collecting(const Context& context, const ServerStyle& style, std::unique_ptr<shard::Shard> shard)
      : CollectingWorker({.checkpoint = hasState(context) ? this : nullptr, .takeover = this},
                         context, style, std::move(shard)) {}

  Result<fabric::Landing> onMessage(Rank from, fabric::Lane lane,
                                    const wire::Header& header) override {
    SLUICE_DCHECK(parts_.context.fabric.loop().inLoop());
    if (header.stage == Stage::kUpdate) return server_.landHyperparameters(from, header);
    SLUICE_RETURN_IF_ERROR(checkSliceAndType(parts_.plan(), header));
    const plan::Slice& slice = parts_.plan().slice(header.slice);
    if (header.stage == Stage::kPush) return server_.landPush(slice, from, lane, header);
    if (header.stage != Stage::kPublish)
      return fabric::refusedStatus(header, "no stage that travels");
    if (has(header.flags, collecting::kNotify)) return landNotice(slice, from, header);
    if (has(header.flags, collecting::kPull)) return server_.landPull(slice, from, header);
    return landResult(slice, from, lane, header);
  }

  Status setHyperparameters(const std::vector<double>& values, Step from) override {
    SLUICE_DCHECK(parts_.context.fabric.loop().inLoop());
    return server_.setHyperparameters(values, from);
  }
  std::set<Rank> ahead() const override { return server_.shard().contributors(); }

  Statistics statistics() const override { return parts_.outbox.statistics(); }

 private:
  static bool hasState(const Context& context) {
    return context.update.optimizer->publishes() != optimizer::Publishes::kMeanGradient;
  }

  // Every gate is open: each of this rank's own parts has been used, and no slice is finished
  // without it. So the states are those of the last step, whatever parts of the next have come from
  // others, and the loop does not touch them.
  Result<std::vector<std::byte>> take() override {
    SLUICE_RETURN_IF_ERROR(checkEveryServerTrains());
    return shard::toBytes(server_.shard().states());
  }
  Status restore(std::span<const std::byte> state) override;
  Status checkEveryServerTrains() const;

  // Takeover. It is not possible if a server has state of an optimizer, which is lost with it; nor
  // without overlap, where all tensors are pushed together and some may have their results already.
  bool isPossible() const override {
    return !hasState(parts_.context) && parts_.isOverlapping &&
           parts_.roles().workers.size() == parts_.roles().world;
  }
  void startAt(std::span<const Step> steps) override {
    for (const SliceId id : parts_.plan().slicesOn(parts_.self))
      server_.shard().startAt(id, steps[index(id)]);
  }
};

// A rank that only serves is told nothing of a checkpoint, and does not know between which steps it
// is.
Status Collecting::checkEveryServerTrains() const {
  if (parts_.roles().workers.size() == parts_.roles().world) return base::ok();
  return {Code::kInvalidArgument,
          "the optimizer's state is on ranks that only serve, and cannot be saved; use "
          "servers=all"};
}

Status Collecting::restore(std::span<const std::byte> state) {
  SLUICE_RETURN_IF_ERROR(checkEveryServerTrains());
  std::vector<shard::ServedState> states;
  if (!state.empty()) {
    SLUICE_ASSIGN_OR_RETURN(states, shard::servedStatesFromBytes(state));
  }
  if (const Status fits = server_.shard().restore(std::move(states)); !fits.isOk())
    return fits.withContext("the saved state does not fit");
  // The caller has put back the parameters too. They are copied to the shard on the loop, which may
  // still be sending the last results.
  const auto& mine = parts_.plan().slicesOn(parts_.self);
  return inPieces(parts_.context.fabric.loop(), mine.size(), [&](size_t i) {
    const plan::Slice& slice = parts_.plan().slice(mine[i]);
    const auto part =
        partOf(parts_.plan(), parts_.context.memory[index(slice.tensor)].result, slice);
    server_.shard().setParameters(slice.id, part);
    return part.size();
  });
}

}  // namespace

Result<std::unique_ptr<Strategy>> makeCollecting(const Context& context, const ServerStyle& style) {
  if (context.collective != nullptr) {
    return Status(Code::kInvalidArgument,
                  "this algorithm has servers and no use for a process group; use "
                  "algorithm=allreduce, wfbp, mgwfbp or pipe");
  }
  SLUICE_ASSIGN_OR_RETURN(auto shard,
                          shard::Shard::make(context.plan, context.fabric.rank(), context.update,
                                             context.fabric.loop().clock(), context.observer));
  if (context.update.optimizer->publishes() == optimizer::Publishes::kParameters) {
    setServed(*shard, context.plan, context.fabric.rank(),
              [&](TensorId id) { return context.parameters[index(id)]; });
  }
  return std::unique_ptr<Strategy>(std::make_unique<Collecting>(context, style, std::move(shard)));
}

}  // namespace sluice::algorithms
