#include <bench/staged_replay/pretend_place.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

namespace sluice::bench {
namespace {

using staging::testing::PretendBytes;

// The start of a copy, as devices have it.
constexpr Duration kCopyLatency = std::chrono::microseconds(10);

// Blocks of the device's memory are rounded up to pages.
constexpr size_t kPage = 4096;
constexpr size_t kSpare = size_t{64} << 20;

// A stream that has not waited begins its next kernel sooner than this.
constexpr Duration kNoWait = std::chrono::microseconds(20);

size_t memoryFor(const Model& model) {
  size_t bytes = kSpare;
  for (const Tensor& tensor : model.tensors) bytes += 2 * (tensor.bytes() + kPage);
  return bytes;
}

}  // namespace

void PretendPlace::makeTensors(const Model& model, Rank rank, SessionOptions& options) {
  rank_ = rank;
  memory_.emplace(model, rank);
  device_.emplace(memoryFor(model));
  pretend::Machine& machine = device_->pretend().machine();
  const pretend::StreamIndex stream = device_->pretend().stream();
  for (const TensorMemory& tensor : memory_->tensors()) {
    const size_t bytes = tensor.gradient.size();
    gradients_.push_back(std::make_shared<PretendBytes>(machine, stream, bytes));
    results_.push_back(std::make_shared<PretendBytes>(machine, stream, bytes));
    std::memcpy(machine.reach(gradients_.back()->address()), tensor.gradient.data(), bytes);
    std::memset(machine.reach(results_.back()->address()), 0, bytes);  // no page is new later
  }
  steps_.resize(model.tensors.size());
  machine.set({.bytesPerSecond = bytesPerSecond_, .copyLatency = kCopyLatency});
  options.device = &*device_;
}

Status PretendPlace::forward(TensorId tensor, Duration work) {
  SLUICE_RETURN_IF_ERROR(session_->wait(tensor));
  compute(tensor, /*isForward=*/true, work);
  return base::ok();
}

Status PretendPlace::backward(TensorId tensor, Duration work) {
  compute(tensor, /*isForward=*/false, work);
  ++steps_[index(tensor)];
  return session_->gradientReady(tensor, {.gradient = gradients_[index(tensor)],
                                          .result = results_[index(tensor)],
                                          .ready = device_->pretend().mark()});
}

void PretendPlace::compute(TensorId tensor, bool isForward, Duration work) {
  const Step step{steps_[index(tensor)]};
  auto& device = device_->pretend();
  device.machine().launch(device.stream(), [this, tensor, step, isForward, work] {
    sleepPrecisely();
    const base::RealClock clock;
    const TimePoint now = clock.now();
    // Sleeping ends late. A kernel that the stream did not have to wait for begins where the last
    // one should have ended, so that the delays do not add up.
    if (kernels_.empty() || now - kernels_.back().done > kNoWait) timeline_.holdUntil(now);
    const TimePoint from = timeline_.end();
    const TimePoint to = timeline_.compute(work);
    if (work > Duration{}) sleepUntil(to);
    kernels_.push_back({tensor, step, isForward, from, to, clock.now()});
  });
}

TimePoint PretendPlace::finish() {
  device_->pretend().machine().synchronize(device_->pretend().stream());
  return timeline_.end();
}

std::string PretendPlace::parametersHash() {
  pretend::Machine& machine = device_->pretend().machine();
  machine.synchronizeDevice(0);
  const auto tensors = memory_->tensors();
  for (size_t t = 0; t < tensors.size(); ++t) {
    std::memcpy(tensors[t].result.data(), machine.reach(results_[t]->address()),
                tensors[t].result.size());
  }
  return memory_->parametersHash();
}

void PretendPlace::putDeviceTimes(trace::RankTrace& trace) {
  std::map<std::pair<TensorId, Step>, TimePoint> made;
  trace.waits.clear();
  for (size_t k = 0; k < kernels_.size(); ++k) {
    const Kernel& kernel = kernels_[k];
    if (!kernel.isForward) {
      made[{kernel.tensor, kernel.step}] = kernel.done;
    } else if (index(kernel.step) > 0) {
      trace.waits.push_back(
          {kernel.tensor, Step{index(kernel.step) - 1}, kernels_[k - 1].to, kernel.from});
    }
  }
  const auto copies = device_->copiesToHost();
  for (StageEvent& event : trace.events) {
    if (event.stage == Stage::kReady) {
      const auto found = made.find({event.tensor, event.step});
      if (found != made.end()) event.at = found->second;
    } else if (event.stage == Stage::kStageOut) {
      // The stager noted the time just after it had queued the copy.
      const auto next =
          std::ranges::upper_bound(copies, event.at, {}, &WatchedDevice::Copy::queued);
      if (next != copies.begin()) event.at = std::prev(next)->begun;
    }
  }
}

}  // namespace sluice::bench
