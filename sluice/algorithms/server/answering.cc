#include <sluice/algorithms/server/answering.h>

#include <algorithm>
#include <utility>

#include <sluice/algorithms/server/answering_checkpoint.h>
#include <sluice/algorithms/server/answering_server.h>
#include <sluice/algorithms/server/answering_worker.h>
#include <sluice/algorithms/server/server_options.h>
#include <sluice/algorithms/slices.h>
#include <sluice/algorithms/words.h>
#include <sluice/base/check.h>
#include <sluice/base/options.h>
#include <sluice/transport/fabric/common.h>

namespace sluice::algorithms {
namespace {

constexpr const char* kSurvivalSetting = "survive-loss";

class Answering final : public Strategy, private LossPolicy {
 public:
  Answering(const Context& context, std::unique_ptr<AnswerPolicy> policy)
      : Strategy({.losses = this}),
        parts_(context, std::move(policy)),
        server_(parts_,
                [this](const plan::Slice& slice, uint64_t lag) { worker_.takeAnswer(slice, lag); }),
        worker_(parts_, server_),
        checkpoint_(parts_, server_) {
    setCheckpoint(checkpoint_);
    parts_.onFailure = [this](const Status& why) { fail(why); };
  }

  void contribute(const Contribution& contribution) override { worker_.contribute(contribution); }
  void contributeSlice(const SliceContribution& slice) override {
    if (!worker_.takesSlices()) return Strategy::contributeSlice(slice);
    worker_.contributeSlice(slice);
  }
  Result<fabric::Landing> onMessage(Rank from, fabric::Lane lane,
                                    const wire::Header& header) override;
  Status setHyperparameters(const std::vector<double>& values, Step from) override {
    SLUICE_DCHECK(parts_.context.fabric.loop().inLoop());
    return worker_.setHyperparameters(values, from);
  }
  Status decide(Decision decision) override { return worker_.decide(decision); }
  void whenIdle(const Done& done) override { worker_.whenIdle(done); }
  void fail(const Status& why) override {
    worker_.fail(why);
    checkpoint_.fail(why);
  }
  std::string describeWait(TensorId tensor) const override {
    const std::string served = server_.describeWait(tensor);
    return worker_.describeWait(tensor) + (served.empty() ? "" : "; served here: " + served);
  }
  Statistics statistics() const override { return parts_.outbox.statistics(); }

 private:
  std::optional<uint64_t> firstStepWithout(uint64_t stepsOfOther) const override {
    return parts_.policy->firstStepWithout(stepsOfOther);
  }
  bool goesOnWithout(Rank lost) const override { return parts_.goesOnWithout(lost); }
  void forget(Rank lost) override {
    SLUICE_DCHECK(parts_.context.fabric.loop().inLoop());
    server_.forget(lost);
  }

  AnsweringParts parts_;
  AnsweringServer server_;
  AnsweringWorker worker_;
  AnsweringCheckpoint checkpoint_;
};

Result<fabric::Landing> Answering::onMessage(Rank from, fabric::Lane lane,
                                             const wire::Header& header) {
  SLUICE_DCHECK(parts_.context.fabric.loop().inLoop());
  // Parts, answers, questions and words share the stages of the path, so a message is told
  // apart by its stage first and its flags second (words.h). Only messages that carry elements
  // have the slice's type, hence the order of the checks: a question or a held state is bytes.
  const bool isWord = has(header.flags, answering::kUse) || has(header.flags, answering::kDrop);
  if (header.stage == Stage::kUpdate && isWord) return server_.landWord(from, lane, header);
  if (header.stage == Stage::kUpdate) return server_.landHyperparameters(from, header);
  SLUICE_RETURN_IF_ERROR(checkSlice(parts_.plan(), header));
  const plan::Slice& slice = parts_.plan().slice(header.slice);
  if (header.stage == Stage::kPush && has(header.flags, answering::kAsksHeld))
    return server_.landQuestion(slice, from, lane, header);
  if (header.stage == Stage::kPush && has(header.flags, answering::kTellsHeld))
    return checkpoint_.landHeld(slice, from, header);
  if (header.dtype != parts_.format.dtypeOf(slice))
    return fabric::refusedStatus(header, "the tensor is of another type");
  if (header.stage == Stage::kPush) return server_.landPush(slice, from, lane, header);
  if (header.stage == Stage::kPublish) return worker_.landAnswer(slice, from, header);
  return fabric::refusedStatus(header, "no stage that travels");
}

}  // namespace

Status chooseAnswering(const base::Config& config, plan::PlanSpec& spec) {
  return chooseSharded(config, kShardedSlice, spec);
}

Status chooseSurvival(const base::Config& config, plan::PlanSpec& spec) {
  if (!config.isOn(option::kSurviveLoss)) return base::ok();
  // The centre of a lost server is gone, and no other rank could continue its slices. So a job
  // can only promise to survive a loss if some worker serves nothing.
  const plan::Roles& roles = spec.roles;
  if (std::ranges::all_of(roles.workers, [&](Rank worker) { return roles.isServer(worker); })) {
    return {Code::kInvalidArgument,
            "--survive-loss is for workers that serve nothing, and here all serve: give --servers "
            "dedicated:K"};
  }
  spec.settings[kSurvivalSetting] = "on";
  return base::ok();
}

bool survivesLoss(const plan::PlanSpec& spec) {
  return spec.settings.contains(kSurvivalSetting);
}

std::unique_ptr<Strategy> makeAnswering(const Context& context,
                                        std::unique_ptr<AnswerPolicy> policy) {
  return std::make_unique<Answering>(context, std::move(policy));
}

}  // namespace sluice::algorithms
