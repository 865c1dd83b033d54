// AD-PSGD (Lian et al. 2018): half of the workers are active, half passive. After each step an
// active worker meets one of its passive neighbours, drawn at random, and both go to the middle
// (gossip/meeting.h), while both compute on with their snapshots. A meeting that has not ended by
// the next step is left to end: nobody waits.
#include <algorithm>
#include <cstring>
#include <set>

#include <sluice/base/log.h>
#include <sluice/base/options.h>
#include <sluice/fabric/common.h>
#include <sluice/gossip/meeting.h>
#include <sluice/gossip/topology.h>
#include <sluice/strategy/algorithms/algorithms.h>
#include <sluice/strategy/gossip/gossip_engine.h>
#include <sluice/strategy/server/local_optimizer.h>
#include <sluice/strategy/slices.h>

namespace sluice::strategy {
namespace {

constexpr const char* kTopologySetting = "topology";
constexpr uint64_t kGraphSeed = 1;
constexpr uint64_t kPartnerSeed = 3;

class AdPsgd final : public Talk {
 public:
  AdPsgd(const Rooms& rooms, Outbox& outbox, gossip::Topology topology)
      : rooms_(rooms),
        outbox_(outbox),
        self_(rooms.plan.roles().workerPosition(rooms.fabric.rank())),
        neighbours_(std::move(topology.neighbours[self_])),
        optimizer_(rooms.plan, rooms.update) {
    own_.reserve(rooms.plan.slices().size());
    for (const plan::Slice& slice : rooms.plan.slices()) {
      const DType dtype = rooms.plan.model()[slice.tensor].dtype;
      const auto first = partOf(rooms.plan, rooms.parameters[index(slice.tensor)], slice);
      own_.push_back({.meeting = {dtype, first}, .theirs = std::vector<std::byte>(first.size())});
    }
  }

  void finish(const WorkerSlice& worker) override {
    const Own& here = own_[index(worker.slice.id)];
    gossip::Meeting& meeting = own_[index(worker.slice.id)].meeting;
    if (!worker.gradient.empty())
      optimizer_.step(worker.slice, meeting.live(), worker.gradient, worker.values);
    if (gossip::isActive(self_) && !neighbours_.empty() && !meeting.isUnderWay() && !here.isBusy)
      begin(worker);
    std::memcpy(worker.parameters.data(), meeting.live().data(), worker.parameters.size());
  }

  void forget(Rank lost) override {
    std::erase(neighbours_, rooms_.plan.roles().workerPosition(lost));
    for (Own& own : own_) {
      if (own.meeting.isUnderWay() && own.partner == lost && !own.isBusy) own.meeting.forget();
    }
  }

  Result<fabric::Landing> onMessage(const plan::Slice& slice, Rank from, fabric::Lane lane,
                                    const wire::Header& header) override {
    Own& here = own_[index(slice.id)];
    if (header.length != here.theirs.size() ||
        header.dtype != rooms_.plan.model()[slice.tensor].dtype)
      return fabric::refusedStatus(header, "not the slice's parameters");
    if (!isNeighbour(from)) return fabric::refusedStatus(header, "not a neighbour");
    if (header.stage == Stage::kPublish) return landAnswer(slice, from, header);
    if (header.stage != Stage::kPush || gossip::isActive(self_))
      return fabric::refusedStatus(header, "only active workers begin, and with passive ones");
    if (here.isBusy) {
      putOff_.emplace(from, lane);
      return fabric::Landing::later();
    }
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
    gossip::Meeting meeting;
    std::vector<std::byte> theirs;
    bool isBusy = false;  // `theirs` is coming in, or, on the passive side, going back
    Rank partner{};       // the active side, while a meeting is under way
  };

  void begin(const WorkerSlice& worker) {
    Own& here = own_[index(worker.slice.id)];
    const auto& workers = rooms_.plan.roles().workers;
    const uint64_t draw = drawAt(kPartnerSeed, rooms_.fabric.rank(), worker.step);
    here.partner = workers[neighbours_[draw % neighbours_.size()]];
    send(worker.slice, Stage::kPush, worker.step, here.partner, here.meeting.begin(),
         [&here, partner = here.partner](const Status& status) {
           // If the answer is coming in already, its end decides.
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
                  .dtype = rooms_.plan.model()[slice.tensor].dtype,
                  .done = std::move(done)});
  }

  void free(const plan::Slice& slice, const Status& status) {
    own_[index(slice.id)].isBusy = false;
    if (status.code() == Code::kCancelled) return;  // the fabric is closing, or closed
    for (const auto& [rank, lane] : std::exchange(putOff_, {})) rooms_.fabric.resume(rank, lane);
  }

  bool isNeighbour(Rank rank) const {
    const auto& roles = rooms_.plan.roles();
    return roles.isWorker(rank) &&
           std::ranges::find(neighbours_, roles.workerPosition(rank)) != neighbours_.end();
  }

  const Rooms rooms_;
  Outbox& outbox_;
  const uint32_t self_;               // position among the workers
  std::vector<uint32_t> neighbours_;  // the same
  LocalOptimizer optimizer_;
  std::vector<Own> own_;                            // by SliceId
  std::set<std::pair<Rank, fabric::Lane>> putOff_;  // that wait for room to land
};

Status chooseAdPsgd(const base::Config& config, plan::PlanSpec& spec) {
  SLUICE_RETURN_IF_ERROR(gossip::parseShape(config.text(option::kTopology)).status());
  spec.settings[kTopologySetting] = config.text(option::kTopology);
  return chooseGossip(config, spec);
}

Result<std::unique_ptr<Strategy>> makeAdPsgd(const Rooms& rooms) {
  SLUICE_RETURN_IF_ERROR(checkUpdate(rooms));
  SLUICE_ASSIGN_OR_RETURN(const auto shape,
                          gossip::parseShape(rooms.plan.spec().settings.at(kTopologySetting)));
  const auto workers = static_cast<uint32_t>(rooms.plan.roles().workers.size());
  auto topology = gossip::makeTopology(shape, workers, kGraphSeed);
  if (!topology.added.empty() && rooms.fabric.rank() == rooms.plan.roles().workers.front()) {
    log("strategy")
        .info("adpsgd: a {} of {} would fall apart without the edges {}, which were added",
              gossip::name(shape), workers, topology.describeAdded());
  }
  return makeGossip(rooms, [&](Outbox& outbox) {
    return std::make_unique<AdPsgd>(rooms, outbox, std::move(topology));
  });
}

}  // namespace

const Algorithm kAdPsgd{
    .name = "adpsgd",
    .help = "gossip: own models, averaged in pairs of neighbours while both compute on",
    .choose = chooseAdPsgd,
    .make = makeAdPsgd,
    .argument = &option::kTopology,
    .keepsRanksEqual = false};

}  // namespace sluice::strategy
