#include <sluice/strategy/gossip.h>

#include <algorithm>

#include <fmt/format.h>

#include <sluice/base/check.h>
#include <sluice/base/options.h>
#include <sluice/strategy/parameter_server.h>
#include <sluice/strategy/values_by_step.h>

namespace sluice::strategy {
namespace {

class Gossip final : public Strategy {
 public:
  Gossip(const Rooms& rooms, const MakeTalk& makeTalk)
      : rooms_(rooms),
        outbox_(
            rooms.fabric, {.order = queue::Order::kPriority, .window = rooms.config.bytes(option::kCredit)},
            [this](const Status& why) { rooms_.gates.fail(why); }, rooms.observer),
        talk_(makeTalk(outbox_)),
        values_(rooms.update.values) {}

  void gradientReady(TensorId tensor, Step step) override { handOver({tensor, step, true}); }
  void gradientAbsent(TensorId tensor, Step step) override { handOver({tensor, step, false}); }

  Result<fabric::Landing> onMessage(Rank from, fabric::Lane lane, const wire::Header& header) override {
    SLUICE_DCHECK(rooms_.fabric.loop().inLoop());
    if (index(header.slice) >= rooms_.plan.slices().size()) return refuseMessage(header, "no such slice");
    const plan::Slice& slice = rooms_.plan.slice(header.slice);
    if (header.tensor != slice.tensor) return refuseMessage(header, "the slice is of another tensor");
    return talk_->onMessage(slice, from, lane, header);
  }

  Status setHyperparameters(const std::vector<double>& values, Step from) override {
    SLUICE_RETURN_IF_ERROR(checkValues(*rooms_.update.optimizer, values));
    values_.set(from, values);
    return base::ok();
  }

  Status decide(Decision decision) override {
    for (const Handed& handed : std::exchange(held_, {})) {
      if (decision == Decision::kUpdate) {
        finish(handed);
      } else {
        rooms_.gates.openEmpty(handed.tensor, handed.step);
      }
    }
    return base::ok();
  }

  std::optional<uint64_t> firstStepWithout(uint64_t /*stepsOfOther*/) const override { return std::nullopt; }
  bool goesOnWithout(Rank lost) override {
    talk_->forget(lost);
    return true;
  }
  std::string describeWait(TensorId /*tensor*/) const override { return "the word that its step is wanted"; }
  Statistics statistics() const override { return outbox_.statistics(); }

 private:
  struct Handed {
    TensorId tensor{};
    Step step{};
    bool hasGradient = false;
  };

  void handOver(const Handed& handed) {
    SLUICE_DCHECK(rooms_.fabric.loop().inLoop());
    if (rooms_.updatesWaitForWord) {
      held_.push_back(handed);
    } else {
      finish(handed);
    }
  }

  void finish(const Handed& handed) {
    const TensorMemory& memory = rooms_.memory[index(handed.tensor)];
    const size_t elementBytes = sizeOf(rooms_.plan.model()[handed.tensor].dtype);
    for (const plan::Slice& slice : rooms_.plan.slicesOf(handed.tensor)) {
      const size_t offset = slice.offset * elementBytes;
      const size_t bytes = rooms_.plan.bytesOf(slice);
      std::span<const std::byte> gradient;
      if (handed.hasGradient) gradient = memory.gradient.subspan(offset, bytes);
      talk_->finish({.slice = slice,
                     .step = handed.step,
                     .gradient = gradient,
                     .parameters = memory.result.subspan(offset, bytes),
                     .values = values_.at(handed.step)});
      if (rooms_.observer != nullptr) {
        rooms_.observer->onStage({plan::Stage::kApplied, handed.step, slice.tensor, slice.id,
                                  rooms_.fabric.rank(), rooms_.fabric.loop().now()});
      }
    }
    rooms_.gates.open(handed.tensor, handed.step);
  }

  const Rooms rooms_;
  Outbox outbox_;
  const std::unique_ptr<Talk> talk_;
  ValuesByStep values_;
  std::vector<Handed> held_;  // what waits for decide()
};

}  // namespace

Status chooseGossip(const Config& config, plan::PlanSpec& spec) {
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
