// AD-PSGD (Lian et al. 2018): half of the workers are active, half passive. After each step an
// active worker meets one of its passive neighbours, drawn at random, and both go to the middle
// (gossip/meeting.h), while both compute on with their snapshots. A meeting that has not ended by
// the next step is left to end: nobody waits.
#include <array>

#include <algorithm>
#include <cstring>

#include <sluice/algorithms/catalogue/algorithm.h>
#include <sluice/algorithms/gossip/draws.h>
#include <sluice/algorithms/gossip/gossip_engine.h>
#include <sluice/algorithms/gossip/meeting.h>
#include <sluice/algorithms/gossip/topology.h>
#include <sluice/algorithms/server/local_optimizer.h>
#include <sluice/algorithms/slices.h>
#include <sluice/base/log.h>
#include <sluice/base/options.h>
#include <sluice/transport/fabric/common.h>
#include <sluice/transport/fabric/deferred_lanes.h>

namespace sluice::algorithms {
namespace {

constexpr base::Option kTopology =
    base::sameOnAllRanks({"topology", base::Kind::kChoice, "ring", "adpsgd: who averages with whom",
                          "ring|torus|exponential|random-regular|complete"});

constexpr const char* kTopologySetting = "topology";

class AdPsgd final : public Talk {
 public:
  AdPsgd(const Context& context, Outbox& outbox, gossip::GossipGraph topology)
      : context_(context),
        outbox_(outbox),
        self_(context.plan.roles().workerPosition(context.fabric.rank())),
        draws_(gossipSeed(context.plan.spec()), self_),
        neighbours_(std::move(topology.neighbours[self_])),
        optimizer_(context.plan, context.update) {
    own_.reserve(context.plan.slices().size());
    for (const plan::Slice& slice : context.plan.slices()) {
      const DType dtype = context.plan.model()[slice.tensor].dtype;
      const auto first = partOf(context.plan, context.parameters[index(slice.tensor)], slice);
      own_.push_back({.meeting = {dtype, first}, .theirs = std::vector<std::byte>(first.size())});
    }
  }

  void finish(const WorkerSlice& worker) override {
    const Own& here = own_[index(worker.slice.id)];
    gossip::PairMeeting& meeting = own_[index(worker.slice.id)].meeting;
    if (!worker.gradient.empty())
      optimizer_.step(worker.slice, meeting.live(), worker.gradient, worker.values);
    // A meeting is begun only if the last one of this slice has ended: nobody waits for it, so
    // an unfinished one takes the turn of the next.
    if (gossip::isActive(self_) && !neighbours_.empty() && !meeting.isUnderWay() && !here.isBusy)
      begin(worker);
    std::memcpy(worker.parameters.data(), meeting.live().data(), worker.parameters.size());
  }

  void forget(Rank lost) override {
    std::erase(neighbours_, context_.plan.roles().workerPosition(lost));
    for (Own& own : own_) {
      if (own.meeting.isUnderWay() && own.partner == lost && !own.isBusy) own.meeting.forget();
    }
  }

  Result<fabric::Landing> onMessage(const plan::Slice& slice, Rank from, fabric::Lane lane,
                                    const wire::Header& header) override {
    Own& here = own_[index(slice.id)];
    if (header.length != here.theirs.size() ||
        header.dtype != context_.plan.model()[slice.tensor].dtype)
      return fabric::refusedStatus(header, "not the slice's parameters");
    if (!isNeighbour(from)) return fabric::refusedStatus(header, "not a neighbour");
    if (header.stage == Stage::kPublish) return landAnswer(slice, from, header);
    // Active workers begin and passive ones answer, never the other way round. Two workers that
    // each waited in the middle of a meeting with the other could block each other.
    if (header.stage != Stage::kPush || gossip::isActive(self_))
      return fabric::refusedStatus(header, "only active workers begin, and with passive ones");
    // One meeting of a slice at a time: a second partner's parameters wait at that partner.
    if (here.isBusy) return deferred_.defer(from, lane);
    here.isBusy = true;
    return landing(slice, [this, &slice, from, step = header.step](const Status& status) {
      if (!status.isOk()) return free(slice, status);  // it will never be there
      own_[index(slice.id)].meeting.meet(own_[index(slice.id)].theirs);
      send(slice, Stage::kPublish, step, from, own_[index(slice.id)].theirs,
           [this, &slice](const Status& sent) { free(slice, sent); });
    });
  }

 private:
  struct Own {
    gossip::PairMeeting meeting;
    std::vector<std::byte> theirs;
    bool isBusy = false;  // `theirs` is coming in, or, on the passive side, going back
    Rank partner{};       // the active side, while a meeting is under way
  };

  void begin(const WorkerSlice& worker) {
    Own& here = own_[index(worker.slice.id)];
    const auto& workers = context_.plan.roles().workers;
    here.partner = workers[neighbours_[draws_.oneOf(neighbours_.size(), index(worker.step))]];
    send(worker.slice, Stage::kPush, worker.step, here.partner, here.meeting.begin(),
         [&here, partner = here.partner](const Status& status) {
           // While the answer is coming in, its own completion decides about the meeting.
           const bool isWaiting =
               here.meeting.isUnderWay() && here.partner == partner && !here.isBusy;
           if (!status.isOk() && isWaiting) here.meeting.forget();
         });
  }

  Result<fabric::Landing> landAnswer(const plan::Slice& slice, Rank from,
                                     const wire::Header& header) {
    Own& here = own_[index(slice.id)];
    if (!here.meeting.isUnderWay() || here.partner != from || here.isBusy)
      return fabric::refusedStatus(header, "not awaited");
    here.isBusy = true;
    return landing(slice, [&here](const Status& status) {
      here.isBusy = false;
      if (!status.isOk()) return here.meeting.forget();
      here.meeting.end(here.theirs);
    });
  }

  fabric::Landing landing(const plan::Slice& slice, fabric::Done done) {
    auto& theirs = own_[index(slice.id)].theirs;
    return {{theirs.data(), theirs.size()}, std::move(done)};
  }

  void send(const plan::Slice& slice, Stage stage, Step step, Rank to,
            std::span<const std::byte> parameters, fabric::Done done) {
    outbox_.post({.slice = slice,
                  .stage = stage,
                  .step = step,
                  .to = to,
                  .turn = index(slice.id),
                  .payload = {parameters.data(), parameters.size()},
                  .dtype = context_.plan.model()[slice.tensor].dtype,
                  .done = std::move(done)});
  }

  void free(const plan::Slice& slice, const Status& status) {
    own_[index(slice.id)].isBusy = false;
    if (status.code() == Code::kCancelled) return;  // the fabric is closing, or closed
    deferred_.resume(context_.fabric);
  }

  bool isNeighbour(Rank rank) const {
    const auto& roles = context_.plan.roles();
    return roles.isWorker(rank) &&
           std::ranges::find(neighbours_, roles.workerPosition(rank)) != neighbours_.end();
  }

  const Context context_;
  Outbox& outbox_;
  const uint32_t self_;  // position among the workers
  const gossip::Draws draws_;
  std::vector<uint32_t> neighbours_;  // by position
  LocalOptimizer optimizer_;
  std::vector<Own> own_;            // by SliceId
  fabric::DeferredLanes deferred_;  // lanes whose message waits for room to land
};

Status chooseAdPsgd(const base::Config& config, plan::PlanSpec& spec) {
  SLUICE_RETURN_IF_ERROR(gossip::parseShape(config.text(kTopology)).status());
  spec.settings[kTopologySetting] = config.text(kTopology);
  return chooseGossip(config, spec);
}

Result<std::unique_ptr<Strategy>> makeAdPsgd(const Context& context) {
  SLUICE_RETURN_IF_ERROR(checkUpdate(context));
  SLUICE_ASSIGN_OR_RETURN(const auto shape,
                          gossip::parseShape(context.plan.spec().settings.at(kTopologySetting)));
  const auto workers = static_cast<uint32_t>(context.plan.roles().workers.size());
  auto topology =
      gossip::makeTopology(shape, workers, gossip::graphSeed(gossipSeed(context.plan.spec())));
  if (!topology.added.empty() && context.fabric.rank() == context.plan.roles().workers.front()) {
    log("strategy")
        .info("adpsgd: a {} of {} would fall apart without the edges {}, which were added",
              gossip::name(shape), workers, topology.describeAdded());
  }
  return makeGossip(context, [&](Outbox& outbox) {
    return std::make_unique<AdPsgd>(context, outbox, std::move(topology));
  });
}

constexpr std::array kAdPsgdOptions{&kTopology, &option::kGossipSeed};

}  // namespace

extern const Algorithm kAdPsgd{
    .name = "adpsgd",
    .help = "gossip: own models, averaged in pairs of neighbours while both compute on",
    .choose = chooseAdPsgd,
    .make = makeAdPsgd,
    .options = kAdPsgdOptions,
    .argument = &kTopology,
    .accuracy = "0.6 points less with 8 workers, 1.2 with 16",
    .keepsRanksEqual = false};

}  // namespace sluice::algorithms
