// GoSGD (Blot et al. 2016): after its step, with probability p, a worker sends its model and half
// of its weight to one other, drawn at random, and expects no answer; what others have sent is
// averaged in, by weight, before the next step (gossip/share.h). Weights are kept slice by slice.
#include <array>

#include <fmt/format.h>

#include <sluice/algorithms/catalogue/algorithm.h>
#include <sluice/algorithms/gossip/draws.h>
#include <sluice/algorithms/gossip/gossip_engine.h>
#include <sluice/algorithms/gossip/share.h>
#include <sluice/algorithms/server/local_optimizer.h>
#include <sluice/algorithms/slices.h>
#include <sluice/base/options.h>
#include <sluice/base/units.h>
#include <sluice/transport/fabric/common.h>
#include <sluice/transport/fabric/deferred_lanes.h>

namespace sluice::algorithms {
namespace {

constexpr base::Option kGossipProbability = base::sameOnAllRanks(
    {"gossip-probability", base::Kind::kNumber, "0.1",
     "gosgd: how likely a worker sends its model to another after a step, up to 1"});

constexpr const char* kProbabilitySetting = "gossip-probability";

class GoSgd final : public Talk {
 public:
  GoSgd(const Context& context, Outbox& outbox, double probability)
      : context_(context),
        outbox_(outbox),
        optimizer_(context.plan, context.update),
        probability_(probability),
        draws_(gossipSeed(context.plan.spec()),
               context.plan.roles().workerPosition(context.fabric.rank())),
        others_(context.plan.roles().workers) {
    std::erase(others_, context.fabric.rank());
    const double weight = 1.0 / static_cast<double>(context.plan.roles().workers.size());
    own_.reserve(context.plan.slices().size());
    for (const plan::Slice& slice : context.plan.slices()) {
      const size_t bytes = context.plan.bytesOf(slice);
      own_.push_back({.share = {context.plan.model()[slice.tensor].dtype, bytes, weight},
                      .landing = std::vector<std::byte>(gossip::Share::messageBytes(bytes))});
    }
  }

  void finish(const WorkerSlice& worker) override {
    gossip::Share& share = own_[index(worker.slice.id)].share;
    if (!worker.gradient.empty())
      optimizer_.step(worker.slice, worker.parameters, worker.gradient, worker.values);
    // The step comes first, then the gift, then what others have given: so a share holds this
    // step's work, without what has just arrived.
    if (isTimeToGive(worker.step) && share.mayGive()) give(worker);
    share.settle(worker.parameters);
  }

  void forget(Rank lost) override { std::erase(others_, lost); }

  Result<fabric::Landing> onMessage(const plan::Slice& slice, Rank from, fabric::Lane lane,
                                    const wire::Header& header) override {
    Own& here = own_[index(slice.id)];
    if (header.stage != Stage::kPush || header.length != here.landing.size())
      return fabric::refusedStatus(header, "not a share");
    if (here.isLanding) return deferred_.defer(from, lane);
    here.isLanding = true;
    return fabric::Landing{
        {here.landing.data(), here.landing.size()}, [this, from, &here](const Status& status) {
          here.isLanding = false;
          // A share that a lost rank had begun to send is lost with it.
          const Status taken = status.isOk() ? here.share.take(here.landing) : base::ok();
          if (!taken.isOk()) context_.refuse(from, taken);
          if (status.code() == Code::kCancelled) return;  // the fabric is closing
          deferred_.resume(context_.fabric);
        }};
  }

 private:
  struct Own {
    gossip::Share share;
    std::vector<std::byte> landing;
    bool isLanding = false;
  };

  bool isTimeToGive(Step step) const {
    return !others_.empty() && draws_.isHit(index(step), probability_);
  }

  void give(const WorkerSlice& worker) {
    gossip::Share& share = own_[index(worker.slice.id)].share;
    const auto message = share.give(worker.parameters);
    // The weight that was given away comes back if the share did not leave, since the weights
    // of all workers must add up to one.
    outbox_.post({.slice = worker.slice,
                  .stage = Stage::kPush,
                  .step = worker.step,
                  .to = others_[draws_.oneOf(others_.size(), index(worker.step))],
                  .turn = index(worker.slice.id),
                  .payload = {message.data(), message.size()},
                  .dtype = DType::kBytes,
                  .done = [&share](const Status& status) {
                    status.isOk() ? share.given() : share.refused();
                  }});
  }

  const Context context_;
  Outbox& outbox_;
  LocalOptimizer optimizer_;
  const double probability_;
  const gossip::Draws draws_;
  std::vector<Rank> others_;
  std::vector<Own> own_;            // by SliceId
  fabric::DeferredLanes deferred_;  // lanes whose message waits for room to land
};

Status chooseGoSgd(const base::Config& config, plan::PlanSpec& spec) {
  const double probability = config.number(kGossipProbability);
  if (!(probability > 0 && probability <= 1)) {
    return {Code::kInvalidArgument,
            fmt::format("--gossip-probability is {}; give more than 0, at most 1", probability)};
  }
  spec.settings[kProbabilitySetting] = fmt::format("{}", probability);
  return chooseGossip(config, spec);
}

Result<std::unique_ptr<Strategy>> makeGoSgd(const Context& context) {
  SLUICE_RETURN_IF_ERROR(checkUpdate(context));
  SLUICE_ASSIGN_OR_RETURN(const double probability,
                          base::parseNumber(context.plan.spec().settings.at(kProbabilitySetting)));
  return makeGossip(context, [&](Outbox& outbox) {
    return std::make_unique<GoSgd>(context, outbox, probability);
  });
}

constexpr std::array kGoSgdOptions{&kGossipProbability, &option::kGossipSeed};

}  // namespace

extern const Algorithm kGoSgd{
    .name = "gosgd",
    .help = "gossip: own models, sent to a random other with probability p, no answer",
    .choose = chooseGoSgd,
    .make = makeGoSgd,
    .options = kGoSgdOptions,
    .argument = &kGossipProbability,
    .accuracy = "1 to 3 points less with 8 workers, 2 to 7 with 16",
    .keepsRanksEqual = false,
    .readsParameters = true};

}  // namespace sluice::algorithms
