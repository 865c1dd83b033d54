#include <sluice/pytorch/backend/work.h>

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace sluice::pytorch {
namespace {

std::exception_ptr exceptionOf(const Status& status) {
  if (status.isOk()) return nullptr;
  return std::make_exception_ptr(
      c10::DistBackendError({__func__, __FILE__, __LINE__}, "sluice: " + status.message()));
}

std::vector<c10::Device> devicesOf(const std::vector<at::Tensor>& tensors) {
  for (const auto& tensor : tensors) {
    if (!tensor.device().is_cpu()) return {tensor.device()};  // a group has one at most
  }
  return {};
}

}  // namespace

PendingWork::PendingWork(int rank, c10d::OpType type, const char* title,
                         std::vector<at::Tensor> inputs, std::vector<at::Tensor> outputs,
                         uint64_t sequence, std::function<void()> interrupt)
    : Work(rank, type, title, std::move(inputs)),
      outputs_(std::move(outputs)),
      sequence_(sequence),
      interrupt_(std::move(interrupt)) {}

void PendingWork::complete(const Status& status, CoreMessenger& messenger) {
  FuturePtr future;
  {
    // The callbacks of a future run on the messenger and not here: they are the user's Python,
    // and this is the loop.
    const std::lock_guard lock(mutex_);
    hasEnded_ = true;
    ending_ = exceptionOf(status);
    future = future_;
  }
  finish(ending_);
  if (!future) return;
  messenger.post(
      [self = c10::intrusive_ptr<PendingWork>::reclaim_copy(this), future] { self->mark(future); });
}

bool PendingWork::wait(std::chrono::milliseconds timeout) {
  if (process_.isInherited()) std::rethrow_exception(exceptionOf(base::forkedStatus()));
  constexpr std::chrono::milliseconds kInterruptPeriod(100);  // short for a person who waits
  const auto end = std::chrono::steady_clock::now() + timeout;
  // c10d's own wait cannot be interrupted, so the thread waits here in short pieces and asks
  // for Ctrl-C between them. The end is left to Work::wait(), which throws the errors that
  // users of c10d know.
  while (interrupt_) {
    {
      std::unique_lock lock(mutex_);
      if (cv_.wait_for(lock, kInterruptPeriod, [this] { return completed_; })) break;
    }
    if (timeout != kNoTimeout && std::chrono::steady_clock::now() + kInterruptPeriod >= end) break;
    interrupt_();
  }
  return Work::wait(timeout == kNoTimeout
                        ? timeout
                        : std::max(std::chrono::milliseconds(1),
                                   std::chrono::duration_cast<std::chrono::milliseconds>(
                                       end - std::chrono::steady_clock::now())));
}

void PendingWork::setLanding(std::shared_ptr<DeviceCopies> copies,
                             std::shared_ptr<const DeviceMark> landed) {
  landing_.with([&](Landing& landing) { landing = {std::move(copies), std::move(landed)}; });
}

void PendingWork::synchronize() {
  const Landing landing = landing_.with([](const Landing& here) { return here; });
  if (landing.landed == nullptr) return;
  const Status status = landing.copies->device().makeStreamWait(*landing.landed);
  TORCH_CHECK_WITH(DistBackendError, status.isOk(), "sluice: ", status.message());
}

void PendingWork::setSource(Rank rank) {
  const std::lock_guard lock(mutex_);
  source_ = rank;
}

int PendingWork::sourceRank() const {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(
      source_.has_value(),
      "sluice: the source is known only of a receive from any rank, and only when it has ended");
  return static_cast<int>(index(*source_));
}

c10::intrusive_ptr<c10::ivalue::Future> PendingWork::getFuture() {
  bool isLate = false;
  FuturePtr future;
  {
    // A future is made only when somebody asks, since each costs a task on the messenger. After the
    // end the asking thread marks it at once.
    const std::lock_guard lock(mutex_);
    if (!future_) {
      future_ = c10::make_intrusive<c10::ivalue::Future>(
          c10::ListType::create(c10::TensorType::get()), devicesOf(outputs_));
      isLate = hasEnded_;
    }
    future = future_;
  }
  if (isLate) mark(future);
  return future;
}

void PendingWork::mark(const FuturePtr& future) const {
  if (ending_) return future->setError(ending_);
  // The future records an event on the current stream, which its readers wait for.
  std::optional<c10::StreamGuard> stream;
  const Landing landing = landing_.with([](const Landing& here) { return here; });
  if (landing.landed != nullptr) stream.emplace(landing.copies->device().resultStream());
  future->markCompleted(c10::IValue(outputs_));
}

}  // namespace sluice::pytorch
