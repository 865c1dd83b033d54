#include <sluice/strategy/sparse_allgather.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include <fmt/format.h>

#include <sluice/base/check.h>
#include <sluice/base/options.h>
#include <sluice/base/units.h>
#include <sluice/codec/dgc.h>
#include <sluice/codec/sparse.h>
#include <sluice/fabric/common.h>
#include <sluice/kernel/element.h>
#include <sluice/kernel/reduce.h>
#include <sluice/shard/optimizers.h>
#include <sluice/strategy/hand_over.h>
#include <sluice/strategy/outbox.h>
#include <sluice/strategy/slices.h>
#include <sluice/strategy/values_by_step.h>

namespace sluice::strategy {
namespace {

constexpr const char* kSparsitySetting = "dgc-sparsity";
constexpr const char* kWarmUpSetting = "dgc-warm-up";
constexpr const char* kClipSetting = "dgc-clip";

struct DgcSettings {
  double sparsity = 0;
  uint64_t stepsPerStage = 0;
  double clip = 0;
};

// Where SGD's hyperparameters lie among its values.
class SgdValues final {
 public:
  explicit SgdValues(std::span<const double> values) : values_(values) {}
  double operator[](std::string_view name) const {
    const auto known = shard::sgd().hyperparameters();
    const auto at = std::ranges::find(known, name, &shard::Hyperparameter::name);
    SLUICE_CHECK(at != known.end(), name);
    return values_[static_cast<size_t>(at - known.begin())];
  }

 private:
  const std::span<const double> values_;
};

Status checkSgd(std::span<const double> values) {
  const SgdValues sgd(values);
  if (sgd["nesterov"] != 0 || sgd["dampening"] != 0) {
    return {Code::kInvalidArgument, "--dgc makes the momentum itself: no nesterov, no dampening"};
  }
  return base::ok();
}

class SparseAllgather final : public Strategy {
 public:
  SparseAllgather(const Rooms& rooms, const DgcSettings& settings)
      : rooms_(rooms),
        settings_(settings),
        self_(rooms.plan.roles().workerPosition(rooms.fabric.rank())),
        outbox_(rooms, byUrgency(rooms.config)),
        handOver_(rooms, [this](const Handed& handed) { begin(handed); }),
        values_(rooms.update.values) {
    const auto workers = static_cast<double>(workerCount());
    const codec::DgcOptions options{.momentum = SgdValues(rooms.update.values)["momentum"],
                                    .clipNorm = settings.clip / std::sqrt(workers)};
    for (const auto& tensor : rooms.plan.model().tensors)
      tensors_.push_back({.dgc = codec::Dgc(tensor.elements, options)});
  }

  void gradientReady(TensorId tensor, Step step) override { handOver_.add({tensor, step, true}); }
  void gradientAbsent(TensorId tensor, Step step) override { handOver_.add({tensor, step, false}); }

  // What has been sent cannot be dropped, so nothing is sent before the word.
  Status decide(Decision decision) override {
    for (const Handed& handed : handOver_.take()) {
      if (decision == Decision::kUpdate) {
        begin(handed);
      } else {
        tensors_[index(handed.tensor)].step = next(handed.step);
        rooms_.gates.openEmpty(handed.tensor, handed.step);
      }
    }
    return base::ok();
  }

  Result<fabric::Landing> onMessage(Rank from, fabric::Lane lane, const wire::Header& header) override;

  Status setHyperparameters(const std::vector<double>& values, Step from) override {
    SLUICE_RETURN_IF_ERROR(checkValues(*rooms_.update.optimizer, values));
    SLUICE_RETURN_IF_ERROR(checkSgd(values));
    if (SgdValues(values)["momentum"] != SgdValues(rooms_.update.values)["momentum"])
      return {Code::kInvalidArgument, "--dgc has the momentum inside: it cannot change during training"};
    values_.set(from, values);
    return base::ok();
  }

  std::string describeWait(TensorId tensor) const override;
  Statistics statistics() const override { return outbox_.statistics(); }

 private:
  using Bytes = std::vector<std::byte>;
  // The parts of one tensor in one step.
  struct Collected {
    std::vector<std::shared_ptr<Bytes>> parts;  // by worker position; null: has not begun to come
    size_t arrived = 0;
  };
  struct OneTensor {
    codec::Dgc dgc;
    Step step{};                            // that is to be finished next
    std::map<Step, Collected> collected{};  // that one, and the next
  };

  size_t workerCount() const { return rooms_.plan.roles().workers.size(); }
  Collected& collectedOf(OneTensor& tensor, Step step) {
    Collected& collected = tensor.collected[step];
    collected.parts.resize(workerCount());
    return collected;
  }
  void begin(const Handed& handed);
  void readGradient(const Handed& handed);
  void send(TensorId id, Step step, const std::shared_ptr<Bytes>& message);
  void arrived(TensorId id, Step step);
  void finish(TensorId id, const Collected& collected);

  const Rooms rooms_;
  const DgcSettings settings_;
  const uint32_t self_;
  Outbox outbox_;
  HandOver handOver_;
  ValuesByStep values_;
  std::vector<OneTensor> tensors_;  // by TensorId
  // Scratch.
  std::vector<float> gradient_;
  std::vector<uint32_t> places_;
};

void SparseAllgather::readGradient(const Handed& handed) {
  const TensorMemory& memory = rooms_.memory[index(handed.tensor)];
  gradient_.assign(rooms_.plan.model()[handed.tensor].elements, 0);
  if (handed.hasGradient) std::memcpy(gradient_.data(), memory.gradient.data(), memory.gradient.size());
  const auto decay = static_cast<float>(SgdValues(values_.at(handed.step))["weight_decay"]);
  if (decay == 0) return;
  for (size_t i = 0; i < gradient_.size(); ++i)
    gradient_[i] += decay * kernel::loadAt<float>(memory.result.data(), i);
}

void SparseAllgather::begin(const Handed& handed) {
  const auto [id, step, hasGradient] = handed;
  OneTensor& tensor = tensors_[index(id)];
  SLUICE_CHECK(tensor.step == step, id, step);
  readGradient(handed);
  const double sparsity = codec::warmUpSparsity(index(step), settings_.stepsPerStage, settings_.sparsity);
  const auto message = std::make_shared<Bytes>(tensor.dgc.compress(gradient_, sparsity));
  collectedOf(tensor, step).parts[self_] = message;
  send(id, step, message);
  arrived(id, step);
}

void SparseAllgather::send(TensorId id, Step step, const std::shared_ptr<Bytes>& message) {
  const plan::Slice& slice = rooms_.plan.slicesOf(id).front();  // stands for the whole tensor
  for (const Rank to : rooms_.plan.roles().workers) {
    if (to == rooms_.fabric.rank()) continue;
    outbox_.post({.slice = slice,
                  .stage = plan::Stage::kPush,
                  .step = step,
                  .to = to,
                  .turn = 0,
                  .payload = {message->data(), message->size()},
                  .dtype = DType::kBytes,
                  .done = [this, message](const Status& status) {  // stays alive until now
                    if (!status.isOk()) rooms_.gates.fail(status);
                  }});
  }
}

Result<fabric::Landing> SparseAllgather::onMessage(Rank from, fabric::Lane /*lane*/,
                                                   const wire::Header& header) {
  SLUICE_DCHECK(rooms_.fabric.loop().inLoop());
  if (header.stage != plan::Stage::kPush || index(header.tensor) >= tensors_.size())
    return fabric::refusedStatus(header, "no such tensor");
  OneTensor& tensor = tensors_[index(header.tensor)];
  // Who is faster cannot be more than one step ahead: it needs this rank's part to go on.
  if (header.step != tensor.step && header.step != next(tensor.step))
    return fabric::refusedStatus(header, "not awaited");
  if (header.length > 1 + rooms_.plan.model()[header.tensor].bytes())
    return fabric::refusedStatus(header, "too long");
  const uint32_t position = rooms_.plan.roles().workerPosition(from);
  Collected& collected = collectedOf(tensor, header.step);
  if (collected.parts[position] != nullptr) return fabric::refusedStatus(header, "it came already");
  const auto part = collected.parts[position] = std::make_shared<Bytes>(header.length);
  return fabric::Landing{{part->data(), part->size()},
                         [this, part, id = header.tensor, step = header.step](const Status& status) {
                           if (!status.isOk()) return rooms_.gates.fail(status);
                           arrived(id, step);
                         }};
}

void SparseAllgather::arrived(TensorId id, Step step) {
  OneTensor& tensor = tensors_[index(id)];
  if (++collectedOf(tensor, step).arrived < workerCount()) return;
  const Collected collected = std::move(tensor.collected.extract(step).mapped());
  tensor.step = next(step);
  finish(id, collected);
}

void SparseAllgather::finish(TensorId id, const Collected& collected) {
  OneTensor& tensor = tensors_[index(id)];
  const Step step{index(tensor.step) - 1};
  std::vector<float> mean(rooms_.plan.model()[id].elements);
  for (const auto& part : collected.parts) {
    places_.clear();
    if (const Status added = codec::addSparse(*part, mean, places_); !added.isOk())
      return rooms_.gates.fail(added);
  }
  const auto scale = static_cast<float>(kernel::meanScale(workerCount()));
  for (float& each : mean) each *= scale;
  std::vector<double> values(shard::sgd().hyperparameters().size());  // momentum and decay are inside already
  values[0] = SgdValues(values_.at(step))["lr"];
  shard::OptimizerState state(shard::sgd().name(), DType::kF32, mean.size());
  const Status applied =
      applyStep(shard::sgd(), state, rooms_.memory[index(id)].result, std::as_bytes(std::span(mean)), values);
  SLUICE_CHECK(applied.isOk(), applied.toString());
  rooms_.gates.open(id, step);
}

std::string SparseAllgather::describeWait(TensorId tensor) const {
  const OneTensor& here = tensors_[index(tensor)];
  std::string missing;
  const auto found = here.collected.find(here.step);
  const auto& workers = rooms_.plan.roles().workers;
  for (size_t w = 0; w < workers.size(); ++w) {
    if (found == here.collected.end() || found->second.parts[w] == nullptr)
      missing += fmt::format(" {}", workers[w]);
  }
  return missing.empty() ? "parts that are coming in" : fmt::format("the parts of rank{}", missing);
}

Result<DgcSettings> settingsOfDgc(const plan::PlanSpec& spec) {
  DgcSettings settings;
  SLUICE_ASSIGN_OR_RETURN(settings.sparsity, base::parseNumber(spec.settings.at(kSparsitySetting)));
  SLUICE_ASSIGN_OR_RETURN(const int64_t warmUp, base::parseInteger(spec.settings.at(kWarmUpSetting)));
  settings.stepsPerStage = static_cast<uint64_t>(warmUp);
  SLUICE_ASSIGN_OR_RETURN(settings.clip, base::parseNumber(spec.settings.at(kClipSetting)));
  return settings;
}

}  // namespace

bool isSparse(const plan::PlanSpec& spec) {
  return spec.settings.contains(kSparsitySetting);
}

Status chooseSparseAllgather(const Config& config, plan::PlanSpec& spec) {
  const double sparsity = config.number(option::kDgcSparsity);
  const double clip = config.number(option::kDgcClip);
  const int64_t warmUp = config.integer(option::kDgcWarmUp);
  if (!(sparsity >= 0 && sparsity <= 1))
    return {Code::kInvalidArgument, fmt::format("--dgc-sparsity is {}; give 0 to 1", sparsity)};
  if (!(clip >= 0) || warmUp < 0)
    return {Code::kInvalidArgument, "--dgc-clip and --dgc-warm-up must not be negative"};
  if (config.text(option::kCodec) != "none")
    return {Code::kInvalidArgument, "give --codec or --dgc, not both"};
  for (const auto& tensor : spec.model.tensors) {
    if (tensor.dtype != DType::kF32)
      return {Code::kInvalidArgument,
              fmt::format("tensor {} is not f32, which is all that --dgc takes", tensor.toString())};
  }
  spec.settings[kSparsitySetting] = fmt::format("{}", sparsity);
  spec.settings[kWarmUpSetting] = std::to_string(warmUp);
  spec.settings[kClipSetting] = fmt::format("{}", clip);
  return base::ok();
}

Result<std::unique_ptr<Strategy>> makeSparseAllgather(const Rooms& rooms) {
  if (rooms.update.optimizer != &shard::sgd()) {
    return Status(Code::kInvalidArgument,
                  "--dgc makes the step itself, by SGD: give sgd as the update (its momentum is made before "
                  "compression)");
  }
  SLUICE_RETURN_IF_ERROR(checkSgd(rooms.update.values));
  SLUICE_ASSIGN_OR_RETURN(const auto settings, settingsOfDgc(rooms.plan.spec()));
  return std::unique_ptr<Strategy>(std::make_unique<SparseAllgather>(rooms, settings));
}

}  // namespace sluice::strategy
