#include <sluice/algorithms/gossip/gossip_engine.h>

#include <algorithm>

#include <fmt/format.h>

#include <sluice/algorithms/contribution.h>
#include <sluice/algorithms/slices.h>
#include <sluice/base/check.h>

namespace sluice::algorithms {
namespace {

constexpr const char* kSeedSetting = "gossip-seed";

class Gossip final : public Strategy, private LossPolicy {
 public:
  Gossip(const Context& context, const MakeTalk& makeTalk)
      : Strategy({.losses = this}),
        context_(context),
        outbox_(context, byUrgency(context.config)),
        contributions_(context.fabric.loop(), context.updatesWaitForWord,
                       [this](const Contribution& each) { finish(each); }),
        talk_(makeTalk(outbox_)),
        values_(context.update.values) {}

  void contribute(const Contribution& contribution) override { contributions_.add(contribution); }

  Result<fabric::Landing> onMessage(Rank from, fabric::Lane lane,
                                    const wire::Header& header) override {
    SLUICE_DCHECK(context_.fabric.loop().inLoop());
    SLUICE_RETURN_IF_ERROR(checkSlice(context_.plan, header));
    return talk_->onMessage(context_.plan.slice(header.slice), from, lane, header);
  }

  Status setHyperparameters(const std::vector<double>& values, Step from) override {
    SLUICE_RETURN_IF_ERROR(checkValues(*context_.update.optimizer, values));
    values_.set(from, values);
    return base::ok();
  }

  Status decide(Decision decision) override {
    for (const Contribution& contribution : contributions_.take()) {
      // A dropped step changes no parameters and sends nothing, but its gates open all the
      // same: training threads wait at them.
      if (decision == Decision::kUpdate) {
        finish(contribution);
      } else {
        context_.openDropped(contribution.tensor, contribution.step);
      }
    }
    return base::ok();
  }

  std::string describeWait(TensorId /*tensor*/) const override {
    return "the training thread has not called step() yet";
  }
  Statistics statistics() const override { return outbox_.statistics(); }

 private:
  std::optional<uint64_t> firstStepWithout(uint64_t /*stepsOfOther*/) const override {
    return std::nullopt;
  }
  // Every worker has a whole model and makes its own steps. The others lose a partner, but no
  // state.
  bool goesOnWithout(Rank /*lost*/) const override { return true; }
  void forget(Rank lost) override { talk_->forget(lost); }

  void finish(const Contribution& contribution) {
    // A step is local, so its gate opens here and never waits for the network. talk_ decides
    // what is mixed in from others, and what is sent to them.
    const TensorMemory& memory = context_.memory[index(contribution.tensor)];
    for (const plan::Slice& slice : context_.plan.slicesOf(contribution.tensor)) {
      std::span<const std::byte> gradient;
      if (contribution.hasGradient) gradient = partOf(context_.plan, memory.gradient, slice);
      talk_->finish({.slice = slice,
                     .step = contribution.step,
                     .gradient = gradient,
                     .parameters = partOf(context_.plan, memory.result, slice),
                     .values = values_.at(contribution.step)});
      context_.resultIsHere(slice, contribution.step, context_.fabric.rank());
    }
    context_.gates.open(contribution.tensor, contribution.step);
  }

  const Context context_;
  Outbox outbox_;
  HeldContributions contributions_;
  const std::unique_ptr<Talk> talk_;
  ValuesByStep values_;
};

}  // namespace

Status chooseGossip(const base::Config& config, plan::PlanSpec& spec) {
  if (spec.roles.workers.size() != spec.roles.world) {
    return {Code::kInvalidArgument,
            fmt::format("{} has no servers: leave out --servers dedicated", spec.strategy)};
  }
  // The seed goes into the plan, which ranks compare: with different seeds they would draw
  // different partners.
  spec.settings[kSeedSetting] = std::to_string(config.integer(option::kGossipSeed));
  return chooseSlices(config, plan::Placement::kRoundRobin, kPublishedSlice, spec);
}

uint64_t gossipSeed(const plan::PlanSpec& spec) {
  // Written by chooseGossip(); a negative seed is as good as any.
  return static_cast<uint64_t>(std::stoll(spec.settings.at(kSeedSetting)));
}

std::unique_ptr<Strategy> makeGossip(const Context& context, const MakeTalk& makeTalk) {
  return std::make_unique<Gossip>(context, makeTalk);
}

}  // namespace sluice::algorithms
