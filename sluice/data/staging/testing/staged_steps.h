// Training steps on a pretend device, with a thread in the place of the network: it adds one to
// every number of a gradient. The numbers that the device reads at the end tell whether every byte
// took the right way.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <sluice/data/plan/plan.h>
#include <sluice/data/staging/stager.h>
#include <sluice/data/staging/testing/pretend_device.h>

namespace sluice::staging::testing {

inline plan::Plan planOf(const std::vector<uint64_t>& elements, uint64_t sliceElements) {
  plan::PlanSpec spec;
  for (const uint64_t count : elements)
    spec.model.tensors.push_back({"t" + std::to_string(spec.model.tensors.size()), count});
  spec.roles = plan::parseRoles("all", 1).value();
  spec.slicing.placement = plan::Placement::kRoundRobin;
  spec.slicing.sliceElements = sliceElements;
  spec.strategy = "p3";
  return plan::Plan::make(spec).value();
}

class StagedSteps final : public Listener {
 public:
  // The memory that gradients come to: mirrors, or targets that are told before or after begin(),
  // or by the test itself.
  enum class Targets : uint8_t { kMirrors, kToldEarly, kToldLate, kByTest };
  StagedSteps(PretendDevice& device, plan::Plan plan, size_t pinnedBytes,
              CopyOrder order = CopyOrder::kUrgentFirst, Targets targets = Targets::kMirrors)
      : device_(device), plan_(std::move(plan)), targets_(targets), come_(tensors()) {
    std::vector<std::span<std::byte>> mirrors;
    for (const Tensor& tensor : plan_.model().tensors) {
      auto& memory = memory_.emplace_back(tensor.elements);
      if (targets == Targets::kMirrors) {
        mirrors.push_back(std::as_writable_bytes(std::span(memory)));
      } else {
        mirrors.emplace_back();
      }
    }
    stager_ = std::make_unique<Stager>(
        StagerTerms{device, plan_, std::move(mirrors), pinnedBytes, order}, *this);
    network_ = std::thread([this] { serve(); });
  }
  ~StagedSteps() {
    stager_->stop();
    {
      const std::lock_guard lock(mutex_);
      isEnding_ = true;
    }
    changed_.notify_all();
    network_.join();
    device_.machine().synchronizeDevice(0);
  }

  Stager& stager() { return *stager_; }
  size_t tensors() const { return plan_.model().tensors.size(); }
  // Returns the order in which gradients were whole.
  std::vector<TensorId> order() {
    const std::lock_guard lock(mutex_);
    return order_;
  }

  // Waits until some slice of a gradient has come. Returns how many copies had ended then.
  size_t awaitFirstSlice() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(20), [this] { return copiesBefore_ > 0; });
    return copiesBefore_;
  }

  // Hands over the gradient of a tensor, which a kernel makes: `value`, `value` + 1, ... Only the
  // stager keeps the gradient's memory.
  void backward(TensorId tensor, float value) { handOver(tensor, compute(tensor, value)); }

  // Queues the kernel that makes a gradient.
  std::shared_ptr<PretendBytes> compute(TensorId tensor, float value) {
    auto gradient = std::make_shared<PretendBytes>(device_.machine(), device_.stream(),
                                                   plan_.model()[tensor].bytes());
    fill(*gradient, value);
    return gradient;
  }
  void handOver(TensorId tensor, std::shared_ptr<PretendBytes> gradient) {
    results_[tensor] = newMemory(tensor);
    if (targets_ == Targets::kToldEarly) tellTarget(tensor);
    stager_->begin(tensor, {std::move(gradient), results_[tensor], device_.mark()});
    if (targets_ == Targets::kToldLate) tellTarget(tensor);
  }
  void tellTarget(TensorId tensor) {
    stager_->targetIs(tensor, std::as_writable_bytes(std::span(memory_[index(tensor)])));
  }

  // Has no gradient for the tensor. The others' result begins with `value`.
  void absent(TensorId tensor, float value) {
    results_[tensor] = newMemory(tensor);
    stager_->begin(tensor, {nullptr, results_[tensor], device_.mark()});
    std::iota(memory_[index(tensor)].begin(), memory_[index(tensor)].end(), value - 1);
    onGradient(tensor, 0, plan_.slicesOf(tensor).size(), {});
  }

  // Waits for the result, and queues a kernel that looks at it.
  Status forward(TensorId tensor, float expected) {
    const Status status = stager_->wait(tensor, std::chrono::seconds(20));
    if (!status.isOk()) return status;
    look(*results_.at(tensor), device_.stream(), expected);
    results_.erase(tensor);
    return {};
  }

  // A whole step: backward in reverse, forward in order. Tensor 0 has no gradient, and its result
  // comes to memory that the device still uses. Nobody reads tensor 1, whose memory belongs to
  // another stream and is given up at once.
  Status step(float value) {
    device_.machine().synchronize(other_);
    useForAMoment(TensorId{0});
    absent(TensorId{0}, value + 1);
    const Status early = forward(TensorId{0}, value + 1);
    if (!early.isOk()) return early;
    for (auto t = static_cast<uint32_t>(tensors()); t-- > 1;) backward(TensorId{t}, value);
    results_.erase(TensorId{1});
    for (uint32_t t = 2; t < tensors(); ++t) {
      const Status status = forward(TensorId{t}, value + 1);
      if (!status.isOk()) return status;
    }
    if (tensors() < 2) return {};
    const Status status = stager_->wait(TensorId{1}, std::chrono::seconds(20));
    const auto next = newMemory(TensorId{1});
    fill(*next, value);
    device_.machine().synchronize(other_);  // a copy that is still under way would come after it
    device_.machine().synchronizeDevice(0);
    look(*next, other_, value);
    return status;
  }

  // Returns how many numbers were wrong so far, when the device has done all its work.
  size_t wrong() {
    device_.machine().synchronizeDevice(0);
    return wrong_;
  }
  Status failure() {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

 private:
  std::shared_ptr<PretendBytes> newMemory(TensorId tensor) {
    return std::make_shared<PretendBytes>(device_.machine(), streamOf(tensor),
                                          plan_.model()[tensor].bytes());
  }
  pretend::StreamIndex streamOf(TensorId tensor) const {
    return tensor == TensorId{1} ? other_ : device_.stream();
  }
  // Writes and reads memory of this tensor's size, and gives it up before the device has done so.
  void useForAMoment(TensorId tensor) {
    const auto memory = newMemory(tensor);
    fill(*memory, 7);
    look(*memory, memory->stream(), 7);
  }
  template <typename Kernel>
  void launch(const PretendBytes& bytes, pretend::StreamIndex stream, bool writes,
              Kernel&& kernel) {
    std::byte* const address = bytes.address();
    if (stream != bytes.stream()) device_.machine().recordStream(address, stream);
    device_.machine().launch(
        stream,
        [this, address, elements = bytes.size() / sizeof(float), kernel] {
          kernel(std::span(reinterpret_cast<float*>(device_.machine().reach(address)), elements));
        },
        {{reinterpret_cast<uintptr_t>(address), writes}});
  }
  void fill(const PretendBytes& bytes, float first) {
    launch(bytes, bytes.stream(), true,
           [first](std::span<float> numbers) { std::iota(numbers.begin(), numbers.end(), first); });
  }
  void look(const PretendBytes& bytes, pretend::StreamIndex stream, float first) {
    launch(bytes, stream, false, [this, first](std::span<const float> numbers) {
      float expected = first;
      for (const float number : numbers) wrong_ += number == expected++ ? 0 : 1;
    });
  }

  void onGradient(TensorId tensor, size_t first, size_t count, TimePoint /*begun*/) override {
    const std::lock_guard lock(mutex_);
    if (copiesBefore_ == 0) copiesBefore_ = device_.machine().copyIntervals().size();
    for (size_t slice = first; slice < first + count; ++slice) arrived_.push_back({tensor, slice});
    changed_.notify_all();
  }
  void onLanded(TensorId /*tensor*/, Step /*step*/) override {}
  void onDeviceFailure(const Status& why) override {
    const std::lock_guard lock(mutex_);
    failure_ = why;
  }

  void serve() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return isEnding_ || !arrived_.empty(); });
      if (isEnding_) return;
      const auto [tensor, slice] = arrived_.front();
      arrived_.pop_front();
      lock.unlock();
      const plan::Slice& described = plan_.slicesOf(tensor)[slice];
      for (uint64_t i = described.offset; i < described.offset + described.count; ++i)
        memory_[index(tensor)][i] += 1;
      stager_->onResult(tensor, Step{}, described.offset * sizeof(float),
                        described.count * sizeof(float),
                        {std::as_bytes(std::span(memory_[index(tensor)]))});
      lock.lock();
      if (++come_[index(tensor)] < plan_.slicesOf(tensor).size()) continue;
      come_[index(tensor)] = 0;
      order_.push_back(tensor);
    }
  }

  PretendDevice& device_;
  const pretend::StreamIndex other_ = device_.machine().newStream(0);
  const plan::Plan plan_;
  const Targets targets_;
  std::vector<std::vector<float>> memory_;  // the mirrors, or other targets
  std::map<TensorId, std::shared_ptr<PretendBytes>> results_;
  std::atomic<size_t> wrong_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<TensorId, size_t>> arrived_;
  std::vector<size_t> come_;  // slices, by tensor
  std::vector<TensorId> order_;
  Status failure_;
  size_t copiesBefore_ = 0;  // the first slice
  bool isEnding_ = false;

  std::unique_ptr<Stager> stager_;
  std::thread network_;
};

}  // namespace sluice::staging::testing
