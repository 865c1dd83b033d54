#include <sluice/algorithms/dgc/allgather.h>

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include <sluice/algorithms/contribution.h>
#include <sluice/algorithms/dgc/compressor.h>
#include <sluice/algorithms/outbox.h>
#include <sluice/algorithms/slices.h>
#include <sluice/base/check.h>
#include <sluice/data/codec/sparse.h>
#include <sluice/data/kernel/reduce.h>
#include <sluice/data/optimizer/optimizers.h>
#include <sluice/transport/fabric/common.h>

namespace sluice::algorithms {
namespace {

class SparseAllgather final : public Strategy, private Checkpoint {
 public:
  SparseAllgather(const Context& context, const DgcSettings& settings, Sends sends)
      : Strategy({.checkpoint = this}),
        context_(context),
        self_(context.plan.roles().workerPosition(context.fabric.rank())),
        outbox_(context, byUrgency(context.config)),
        contributions_(context.fabric.loop(), context.updatesWaitForWord,
                       [this](const Contribution& each) { begin(each); }),
        toBegin_(sends == Sends::kAsReady ? 1 : context.plan.model().tensors.size()),
        values_(context.update.values),
        compressor_(context, settings, Compressor::tensorsOf(context.plan)),
        tensors_(context.plan.model().tensors.size()) {}

  void contribute(const Contribution& contribution) override { contributions_.add(contribution); }

  // A part that has been sent cannot be dropped, so nothing is sent before the word.
  Status decide(Decision decision) override {
    for (const Contribution& contribution : contributions_.take()) {
      if (decision == Decision::kUpdate) {
        begin(contribution);
      } else {
        // A dropped step still counts, on every rank alike: the next part carries the next
        // number, and parts of others are expected under it.
        tensors_[index(contribution.tensor)].step = next(contribution.step);
        context_.openDropped(contribution.tensor, contribution.step);
      }
    }
    return base::ok();
  }

  Result<fabric::Landing> onMessage(Rank from, fabric::Lane lane,
                                    const wire::Header& header) override;

  Status setHyperparameters(const std::vector<double>& values, Step from) override {
    SLUICE_RETURN_IF_ERROR(checkValues(*context_.update.optimizer, values));
    SLUICE_RETURN_IF_ERROR(checkDgcValues(values, context_.update));
    values_.set(from, values);
    return base::ok();
  }

  std::string describeWait(TensorId tensor) const override;
  Statistics statistics() const override { return outbox_.statistics(); }

 private:
  Result<std::vector<std::byte>> take() override;
  Status restore(std::span<const std::byte> bytes) override;

  using Bytes = std::vector<std::byte>;
  // The parts of one tensor in one step.
  struct Collected {
    std::vector<std::shared_ptr<Bytes>> parts;  // by worker position; null: has not begun to come
    size_t arrived = 0;
  };
  struct OneTensor {
    Step step{};                            // that is to be finished next
    std::map<Step, Collected> collected{};  // `step` and the next
  };

  size_t workerCount() const { return context_.plan.roles().workers.size(); }
  Collected& collectedOf(OneTensor& tensor, Step step) {
    Collected& collected = tensor.collected[step];
    collected.parts.resize(workerCount());
    return collected;
  }
  void begin(const Contribution& contribution) {
    for (const Contribution& each : toBegin_.add(contribution)) compressAndSend(each);
  }
  void compressAndSend(const Contribution& contribution);
  void send(TensorId id, Step step, const std::shared_ptr<Bytes>& message);
  void arrived(TensorId id, Step step, Rank from);
  void finish(TensorId id, const Collected& collected);
  void observe(Stage stage, TensorId id, Step step, Rank peer) const;

  const Context context_;
  const uint32_t self_;
  Outbox outbox_;
  HeldContributions contributions_;
  Together<Contribution> toBegin_;
  ValuesByStep values_;
  Compressor compressor_;  // by TensorId, as the next
  std::vector<OneTensor> tensors_;
  std::vector<uint32_t> places_;  // scratch
};

void SparseAllgather::compressAndSend(const Contribution& contribution) {
  const auto [id, step, hasGradient] = contribution;
  OneTensor& tensor = tensors_[index(id)];
  SLUICE_CHECK(tensor.step == step, id, step);
  const auto message =
      std::make_shared<Bytes>(compressor_.compress(index(id), step, hasGradient, values_.at(step)));
  collectedOf(tensor, step).parts[self_] = message;
  send(id, step, message);
  arrived(id, step, context_.fabric.rank());
}

// A tensor travels as one message, which its first slice stands for.
void SparseAllgather::send(TensorId id, Step step, const std::shared_ptr<Bytes>& message) {
  const plan::Slice& slice = context_.plan.slicesOf(id).front();
  for (const Rank to : context_.plan.roles().workers) {
    if (to == context_.fabric.rank()) continue;
    outbox_.post({.slice = slice,
                  .stage = Stage::kPush,
                  .step = step,
                  .to = to,
                  .turn = 0,
                  .payload = {message->data(), message->size()},
                  .dtype = DType::kBytes,
                  .done = [this, message](const Status& status) {  // stays alive until now
                    if (!status.isOk()) context_.gates.fail(status);
                  }});
  }
}

Result<fabric::Landing> SparseAllgather::onMessage(Rank from, fabric::Lane /*lane*/,
                                                   const wire::Header& header) {
  SLUICE_DCHECK(context_.fabric.loop().inLoop());
  if (header.stage != Stage::kPush || index(header.tensor) >= tensors_.size())
    return fabric::refusedStatus(header, "no such tensor");
  OneTensor& tensor = tensors_[index(header.tensor)];
  // A faster rank is at most one step ahead: it needs this rank's part to go on.
  if (header.step != tensor.step && header.step != next(tensor.step))
    return fabric::refusedStatus(header, "not awaited");
  // The length is all that is known of a compressed part before it is here: it cannot be longer
  // than all elements and one byte that says how they are packed.
  if (header.length > 1 + context_.plan.model()[header.tensor].bytes())
    return fabric::refusedStatus(header, "too long");
  const uint32_t position = context_.plan.roles().workerPosition(from);
  Collected& collected = collectedOf(tensor, header.step);
  if (collected.parts[position] != nullptr) return fabric::refusedStatus(header, "it came already");
  const auto part = collected.parts[position] = std::make_shared<Bytes>(header.length);
  return fabric::Landing{
      {part->data(), part->size()},
      [this, part, from, id = header.tensor, step = header.step](const Status& status) {
        if (!status.isOk()) return context_.gates.fail(status);
        arrived(id, step, from);
      }};
}

void SparseAllgather::observe(Stage stage, TensorId id, Step step, Rank peer) const {
  for (const plan::Slice& slice : context_.plan.slicesOf(id))
    context_.stages().enter(stage, step, slice, peer);
}

void SparseAllgather::arrived(TensorId id, Step step, Rank from) {
  observe(Stage::kCollect, id, step, from);
  OneTensor& tensor = tensors_[index(id)];
  if (++collectedOf(tensor, step).arrived < workerCount()) return;
  // The parts leave the map before they are summed, since opening the gate may bring the next
  // step's contribution to this tensor.
  const Collected collected = std::move(tensor.collected.extract(step).mapped());
  tensor.step = next(step);
  finish(id, collected);
}

void SparseAllgather::finish(TensorId id, const Collected& collected) {
  OneTensor& tensor = tensors_[index(id)];
  // arrived() has moved the tensor on to its next step already; these parts are of the one
  // before.
  const Step step{index(tensor.step) - 1};
  const Rank self = context_.fabric.rank();
  observe(Stage::kReduce, id, step, self);
  std::vector<float> mean(context_.plan.model()[id].elements);
  // Each rank sums in rank order for itself, so that all get the same bits. A part that cannot
  // be decoded names its sender, who is given up.
  for (size_t w = 0; w < collected.parts.size(); ++w) {
    places_.clear();
    if (const Status added = codec::addSparse(*collected.parts[w], mean, places_); !added.isOk())
      return context_.refuse(context_.plan.roles().workers[w], added);
  }
  const auto scale = static_cast<float>(kernel::meanScale(workerCount()));
  for (float& each : mean) each *= scale;
  observe(Stage::kUpdate, id, step, self);
  // Momentum and decay are inside already.
  optimizer::plainStep(DType::kF32, context_.memory[index(id)].result,
                       std::as_bytes(std::span(mean)), sgdValue(values_.at(step), "lr"));
  for (const plan::Slice& slice : context_.plan.slicesOf(id))
    context_.resultIsHere(slice, step, self);
  context_.gates.open(id, step);
}

Result<std::vector<std::byte>> SparseAllgather::take() {
  CentreState state{.rank = index(context_.fabric.rank()), .steps = compressor_.steps()};
  for (uint32_t t = 0; t < tensors_.size(); ++t) {
    SavedTensor& saved = state.tensors.emplace_back();
    saved.name = context_.plan.model().tensors[t].name;
    compressor_.save(TensorId{t}, saved);
  }
  return state.toBytes();
}

Status SparseAllgather::restore(std::span<const std::byte> bytes) {
  SLUICE_ASSIGN_OR_RETURN(const CentreState state,
                          CentreState::readFor(context_.plan, *context_.update.optimizer, bytes));
  // What was kept back, and momentum, are a rank's own: taken from another rank's file they
  // would count twice. Only the number of steps is good for all, and warm-up goes on from it.
  const bool isOurs = state.rank == index(context_.fabric.rank());
  if (!isOurs && !bytes.empty()) warnOfOthers(context_.fabric.rank(), Rank{state.rank});
  for (uint32_t t = 0; t < tensors_.size(); ++t) {
    compressor_.restore(TensorId{t},
                        isOurs ? state.find(context_.plan.model().tensors[t].name) : nullptr);
  }
  compressor_.setSteps(state.steps);
  return base::ok();
}

std::string SparseAllgather::describeWait(TensorId tensor) const {
  const OneTensor& here = tensors_[index(tensor)];
  std::string missing;
  const auto found = here.collected.find(here.step);
  const auto& workers = context_.plan.roles().workers;
  for (size_t w = 0; w < workers.size(); ++w) {
    if (found == here.collected.end() || found->second.parts[w] == nullptr)
      missing += fmt::format(" {}", workers[w]);
  }
  return missing.empty() ? "parts that are coming in" : fmt::format("the parts of rank{}", missing);
}

}  // namespace

Result<std::unique_ptr<Strategy>> makeSparseAllgather(const Context& context, Sends sends) {
  SLUICE_ASSIGN_OR_RETURN(const auto settings,
                          settingsOfDgc(context, context.plan.roles().workers.size()));
  return std::unique_ptr<Strategy>(std::make_unique<SparseAllgather>(context, settings, sends));
}

}  // namespace sluice::algorithms
