#include <sluice/strategy/gossip/gossip_engine.h>

#include <algorithm>

#include <fmt/format.h>

#include <sluice/base/check.h>
#include <sluice/strategy/hand_over.h>
#include <sluice/strategy/slices.h>
#include <sluice/strategy/values_by_step.h>

namespace sluice::strategy {
namespace {

class Gossip final : public Strategy {
 public:
  Gossip(const Rooms& rooms, const MakeTalk& makeTalk)
      : rooms_(rooms),
        outbox_(rooms, byUrgency(rooms.config)),
        handOver_(rooms, [this](const Handed& handed) { finish(handed); }),
        talk_(makeTalk(outbox_)),
        values_(rooms.update.values) {}

  void gradientReady(TensorId tensor, Step step) override { handOver_.add({tensor, step, true}); }
  void gradientAbsent(TensorId tensor, Step step) override { handOver_.add({tensor, step, false}); }

  Result<fabric::Landing> onMessage(Rank from, fabric::Lane lane,
                                    const wire::Header& header) override {
    SLUICE_DCHECK(rooms_.fabric.loop().inLoop());
    SLUICE_RETURN_IF_ERROR(checkSlice(rooms_.plan, header));
    return talk_->onMessage(rooms_.plan.slice(header.slice), from, lane, header);
  }

  Status setHyperparameters(const std::vector<double>& values, Step from) override {
    SLUICE_RETURN_IF_ERROR(checkValues(*rooms_.update.optimizer, values));
    values_.set(from, values);
    return base::ok();
  }

  Status decide(Decision decision) override {
    for (const Handed& handed : handOver_.take()) {
      if (decision == Decision::kUpdate) {
        finish(handed);
      } else {
        rooms_.gates.openEmpty(handed.tensor, handed.step);
      }
    }
    return base::ok();
  }

  std::optional<uint64_t> firstStepWithout(uint64_t /*stepsOfOther*/) const override {
    return std::nullopt;
  }
  bool goesOnWithout(Rank /*lost*/) const override { return true; }
  void forget(Rank lost) override { talk_->forget(lost); }
  std::string describeWait(TensorId /*tensor*/) const override {
    return "the word that its step is wanted";
  }
  Statistics statistics() const override { return outbox_.statistics(); }

 private:
  void finish(const Handed& handed) {
    const TensorMemory& memory = rooms_.memory[index(handed.tensor)];
    for (const plan::Slice& slice : rooms_.plan.slicesOf(handed.tensor)) {
      std::span<const std::byte> gradient;
      if (handed.hasGradient) gradient = partOf(rooms_.plan, memory.gradient, slice);
      talk_->finish({.slice = slice,
                     .step = handed.step,
                     .gradient = gradient,
                     .parameters = partOf(rooms_.plan, memory.result, slice),
                     .values = values_.at(handed.step)});
      if (rooms_.observer != nullptr) {
        rooms_.observer->onStage({Stage::kApplied, handed.step, slice.tensor, slice.id,
                                  rooms_.fabric.rank(), rooms_.fabric.loop().now()});
      }
    }
    rooms_.gates.open(handed.tensor, handed.step);
  }

  const Rooms rooms_;
  Outbox outbox_;
  HandOver handOver_;
  const std::unique_ptr<Talk> talk_;
  ValuesByStep values_;
};

}  // namespace

Status chooseGossip(const base::Config& config, plan::PlanSpec& spec) {
  if (spec.roles.workers.size() != spec.roles.world) {
    return {Code::kInvalidArgument,
            fmt::format("{} has no servers: leave out --servers dedicated", spec.strategy)};
  }
  return chooseSlices(config, plan::Placement::kRoundRobin, kPublishedSlice, spec);
}

std::unique_ptr<Strategy> makeGossip(const Rooms& rooms, const MakeTalk& makeTalk) {
  return std::make_unique<Gossip>(rooms, makeTalk);
}

uint64_t drawAt(uint64_t seed, Rank rank, Step step) {
  uint64_t number = seed;
  for (const uint64_t each : {uint64_t{index(rank)}, index(step)}) {  // splitmix64
    number += 0x9e3779b97f4a7c15U + each;
    number = (number ^ (number >> 30U)) * 0xbf58476d1ce4e5b9U;
    number = (number ^ (number >> 27U)) * 0x94d049bb133111ebU;
    number ^= number >> 31U;
  }
  return number;
}

}  // namespace sluice::strategy
