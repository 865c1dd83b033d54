#include <sluice/session/device_path.h>

#include <utility>

#include <fmt/format.h>

#include <sluice/algorithms/catalogue/registry.h>
#include <sluice/base/log.h>
#include <sluice/base/options.h>
#include <sluice/base/units.h>

namespace sluice::session {
namespace {

// Tensors in the mirrors begin at such addresses, for the kernels that sum them.
constexpr size_t kAlignment = 64;

size_t aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

Result<std::unique_ptr<DevicePath>> DevicePath::make(Device& device, const base::Config& config,
                                                     StageObserver* observer) {
  SLUICE_RETURN_IF_ERROR(
      staging::checkPinnedBytes(device.name(), config.bytes(option::kStagingBytes)));
  return std::unique_ptr<DevicePath>(new DevicePath(device, config, observer));
}

Status DevicePath::begin(Trainer& trainer) {
  trainer_ = &trainer;
  const plan::Plan& plan = trainer.plan();
  const auto& tensors = plan.model().tensors;
  std::vector<size_t> sizes;
  for (uint32_t t = 0; t < tensors.size(); ++t)
    // Tensors that have a target in the algorithm need no mirror: their gradients go there
    // directly. All mirrors lie in one allocation, which is not filled, so pages that no tensor
    // touches cost nothing.
    sizes.push_back(trainer.hasTargetFor(TensorId{t}) ? 0 : tensors[t].bytes());
  for (const size_t bytes : sizes) mirrorBytes_ += aligned(bytes);
  memory_ = std::make_shared_for_overwrite<std::byte[]>(mirrorBytes_);  // NOLINT(*-avoid-c-arrays)
  isOnDevice_ = std::make_unique<std::atomic<bool>[]>(tensors.size());  // NOLINT(*-avoid-c-arrays)
  std::vector<std::span<std::byte>> mirrors;
  size_t offset = 0;
  for (size_t t = 0; t < tensors.size(); ++t) {
    const std::span<std::byte> gradient(memory_.get() + offset, sizes[t]);
    offset += aligned(sizes[t]);
    // New parameters have a place already; a mean comes where the gradient was.
    const auto& given = trainer.givenMemory();
    const std::span<std::byte> result = given.empty() ? gradient : given[t].result;
    mirrors_.push_back({.gradient = gradient, .result = result, .owner = memory_});
    mirrors.push_back(gradient);
  }
  SLUICE_ASSIGN_OR_RETURN(const algorithms::Algorithm* algorithm,
                          algorithms::findAlgorithm(plan.spec().strategy));
  stager_ = std::make_unique<staging::Stager>(
      staging::StagerTerms{.device = device_,
                           .plan = plan,
                           .mirrors = std::move(mirrors),
                           .pinnedBytes = config_.bytes(option::kStagingBytes),
                           .order = algorithm->sendsOldestFirst ? staging::CopyOrder::kOldestFirst
                                                                : staging::CopyOrder::kUrgentFirst},
      *this);
  return base::ok();
}

void DevicePath::end() {
  if (stager_ != nullptr) stager_->stop();
}

Status DevicePath::check(TensorId tensor, const DeviceMemory& memory) const {
  const Tensor& described = trainer_->plan().model()[tensor];
  const DeviceBytes* const result = memory.result.get();
  if (result == nullptr) {
    return {Code::kInvalidArgument,
            fmt::format("tensor {} was given no memory on {} for its result", described.toString(),
                        device_.name())};
  }
  for (const DeviceBytes* part : {memory.gradient.get(), result}) {
    if (part == nullptr || part->size() == described.bytes()) continue;
    return {Code::kInvalidArgument,
            fmt::format("tensor {} needs {} bytes, but its memory on {} has {}",
                        described.toString(), described.bytes(), device_.name(), part->size())};
  }
  return base::ok();
}

template <typename HandOver>
Status DevicePath::handOver(TensorId tensor, DeviceMemory memory, HandOver&& toTrainer) {
  SLUICE_RETURN_IF_ERROR(check(tensor, memory));
  // The order matters: results are told apart by this flag, the trainer closes the gate, and
  // the stager may copy only after that. The stager hears of the tensor last, so that no slice
  // of it arrives at a trainer that does not expect one.
  isOnDevice_[index(tensor)] = true;  // before any result can come
  SLUICE_RETURN_IF_ERROR(toTrainer(mirrors_[index(tensor)]));
  stager_->begin(tensor, std::move(memory));
  return base::ok();
}

Status DevicePath::gradientReady(TensorId tensor, DeviceMemory memory) {
  if (memory.gradient == nullptr) {
    return {Code::kInvalidArgument,
            fmt::format("tensor {} was given no gradient on {}; call gradientAbsent() for it",
                        trainer_->plan().model()[tensor].toString(), device_.name())};
  }
  return handOver(tensor, std::move(memory), [&](const TensorMemory& mirror) {
    return trainer_->gradientComes(tensor, mirror, [this, tensor](std::span<std::byte> target) {
      stager_->targetIs(tensor, target);
    });
  });
}

Status DevicePath::gradientAbsent(TensorId tensor, DeviceMemory memory) {
  memory.gradient = nullptr;
  return handOver(tensor, std::move(memory), [&](const TensorMemory& mirror) {
    return trainer_->gradientAbsent(tensor, mirror.result, mirror.owner);
  });
}

Status DevicePath::handOutDelayed(TensorId tensor, DeviceMemory memory) {
  memory.gradient = nullptr;
  return handOver(tensor, std::move(memory), [&](const TensorMemory& mirror) {
    return trainer_->handOutDelayed(tensor, mirror.result, mirror.owner);
  });
}

Status DevicePath::wait(TensorId tensor) {
  SLUICE_RETURN_IF_ERROR(trainer_->wait(tensor));
  // A gate that is open says that the result is in host memory. For a tensor on a device it
  // still has to be copied; an empty result has nothing to copy.
  if (!isOnDevice_[index(tensor)] || trainer_->isEmpty(tensor)) return base::ok();
  return stager_->wait(tensor, config_.duration(option::kWaitTimeout), trainer_->interruption());
}

Status DevicePath::waitAll() {
  for (uint32_t t = 0; t < mirrors_.size(); ++t) SLUICE_RETURN_IF_ERROR(wait(TensorId{t}));
  return base::ok();
}

bool DevicePath::isReady(TensorId tensor) const {
  if (!trainer_->isReady(tensor)) return false;
  return !isOnDevice_[index(tensor)] || trainer_->isEmpty(tensor) || stager_->isQueued(tensor);
}

void DevicePath::onResult(const algorithms::SliceResult& result) {
  const Applied applied{result.slice, result.from};
  if (!isOnDevice_[index(result.tensor)]) return report(result.tensor, result.step, applied);
  // A slice counts as applied once it is on the device, so its event waits here until the copy
  // has landed. Without an observer nobody asks.
  if (observer_ != nullptr) {
    landing_.with([&](auto& landing) { landing[{result.tensor, result.step}].push_back(applied); });
  }
  stager_->onResult(result.tensor, result.step, result.firstByte, result.bytes,
                    {result.whole.bytes, result.whole.owner});
}

void DevicePath::onNoResult(TensorId tensor, Step /*step*/) {
  if (isOnDevice_[index(tensor)]) stager_->noResult(tensor);
}

void DevicePath::onGradient(TensorId tensor, size_t first, size_t count, TimePoint begun) {
  trainer_->slicesReady(tensor, first, count, begun);
}

void DevicePath::onLanded(TensorId tensor, Step step) {
  if (observer_ == nullptr) return;
  const auto slices = landing_.with([&](auto& landing) {
    auto node = landing.extract({tensor, step});
    return node.empty() ? std::vector<Applied>() : std::move(node.mapped());
  });
  for (const Applied& applied : slices) report(tensor, step, applied);
}

void DevicePath::report(TensorId tensor, Step step, const Applied& applied) const {
  if (observer_ == nullptr) return;
  observer_->onStage(
      {Stage::kApplied, step, tensor, applied.slice, applied.from, base::RealClock().now()});
}

void DevicePath::onDeviceFailure(const Status& why) {
  log("session").warn("{}", why.message());
  trainer_->fail(why);
}

}  // namespace sluice::session
