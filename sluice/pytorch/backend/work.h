// A call of torch.distributed under way. Made by the thread that calls, completed on the loop.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <sluice/base/fork.h>
#include <sluice/base/mutex.h>
#include <sluice/base/status.h>
#include <sluice/pytorch/backend/core.h>
#include <sluice/pytorch/backend/tensors.h>

namespace sluice::pytorch {

class PendingWork final : public c10d::Work {
 public:
  // The future gives `outputs`. `interrupt`, if any, is called now and then by a thread that waits,
  // and ends the wait by an exception.
  PendingWork(int rank, c10d::OpType type, const char* title, std::vector<at::Tensor> inputs,
              std::vector<at::Tensor> outputs, uint64_t sequence, std::function<void()> interrupt);

  // Completes the call; runs once. Waiting threads go on at once; callbacks on the future run on
  // the messenger.
  void complete(const Status& status, CoreMessenger& messenger);
  // Says where the outputs lie on a device, before complete(): whoever waits makes its stream wait
  // for `landed`.
  void setLanding(std::shared_ptr<DeviceCopies> copies, std::shared_ptr<const DeviceMark> landed);
  void setSource(Rank rank);  // before complete()

  // Throws in a forked child, where nobody would complete the call.
  bool wait(std::chrono::milliseconds timeout) override;

  // Makes the calling thread's stream wait for outputs on a device.
  void synchronize() override;

  std::vector<at::Tensor> result() override { return outputs_; }
  int sourceRank() const override;
  uint64_t getSequencenumber() const override { return sequence_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;
  struct Landing {
    std::shared_ptr<DeviceCopies> copies{};      // null: no output is on a device
    std::shared_ptr<const DeviceMark> landed{};  // likewise
  };
  void mark(const FuturePtr& future) const;

  const std::vector<at::Tensor> outputs_;
  const uint64_t sequence_;
  const std::function<void()> interrupt_;
  const base::ProcessMark process_;
  base::Guarded<Landing> landing_;  // c10d calls synchronize() with mutex_ held
  // All below is guarded by mutex_ of the base class.
  FuturePtr future_;  // null: nobody has asked for it
  bool hasEnded_ = false;
  std::exception_ptr ending_;
  std::optional<Rank> source_;
};

}  // namespace sluice::pytorch
