// The backend "sluice" of torch.distributed: c10d's calls as collectives and messages over our own
// fabric. Any thread may call, and all ranks in the same order, as with every backend.
//
// All-reduce of floats rides FabricCollective; everything else is one or two legs of parcels
// (tensors.h).
#pragma once

#include <torch/version.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <sluice/base/fork.h>
#include <sluice/base/mutex.h>
#include <sluice/pytorch/backend/core.h>
#include <sluice/pytorch/backend/tensors.h>
#include <sluice/pytorch/backend/work.h>

// Functions of c10d's classes that became virtual in these releases.
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 7
#define SLUICE_SINCE_TORCH_2_7 override
#else
#define SLUICE_SINCE_TORCH_2_7
#endif
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 9
#define SLUICE_SINCE_TORCH_2_9 override
#else
#define SLUICE_SINCE_TORCH_2_9
#endif

namespace sluice::pytorch {

// The link of a backend to the other ranks and to its callbacks. Python keeps it too, to end it
// before the interpreter ends.
class BackendLink final {
 public:
  explicit BackendLink(std::shared_ptr<CoreGroup> group)
      : messenger_(std::make_unique<CoreMessenger>()), group_(std::move(group)) {}
  ~BackendLink() { close(); }

  CoreGroup& group() { return *group_; }
  CoreMessenger& messenger() { return *messenger_; }

  // Returns the copies between this device and the host. Makes them at the first call, and refuses
  // a second device. Any thread.
  std::shared_ptr<DeviceCopies> copiesOf(const c10::Device& device);
  // Returns the copies if there are any; null: no tensor was on a device yet.
  std::shared_ptr<DeviceCopies> copies() const {
    return copies_.with([](const auto& copies) { return copies; });
  }

  // Ends in good order, and returns when that is done, also if another thread does it. A second
  // call, and a call in a forked child, does nothing. REQUIRES: the caller is no callback, and holds
  // nothing that callbacks need.
  void close() {
    if (process_.isInherited()) return;
    // The messenger must not end while the group's last calls end through it.
    const base::Lock lock(closing_);
    if (const auto copies = this->copies()) copies->copier().stop();
    group_->leave();
    messenger_->end();
  }

 private:
  const base::ProcessMark process_;
  base::Mutex closing_;
  // Outlives the group, whose last calls end through the messenger.
  const base::HomePtr<CoreMessenger> messenger_;
  const std::shared_ptr<CoreGroup> group_;
  base::Guarded<std::shared_ptr<DeviceCopies>> copies_;
};

class SluiceBackend final : public c10d::Backend {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  // `close` closes the connection in the way that its thread must; `interrupt` is as in
  // PendingWork.
  SluiceBackend(std::shared_ptr<BackendLink> connection, std::chrono::milliseconds timeout,
                std::function<void(BackendLink&)> close, std::function<void()> interrupt = {});
  ~SluiceBackend() override { close_(*connection_); }

  const std::string getBackendName() const override {
    return "sluice";
  }  // NOLINT: c10d's signature
  c10::intrusive_ptr<Options> getBackendOptions() SLUICE_SINCE_TORCH_2_9 { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) SLUICE_SINCE_TORCH_2_9 {
    options_->timeout = timeout;
  }
  void setSequenceNumberForGroup() override {}  // it is 0 on every rank
  uint64_t getSequenceNumberForGroup() override { return sequence_; }
  void shutdown() SLUICE_SINCE_TORCH_2_7 { close_(*connection_); }
  void abort() SLUICE_SINCE_TORCH_2_7 { close_(*connection_); }

  WorkPtr broadcast(std::vector<at::Tensor>& tensors,
                    const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(std::vector<at::Tensor>& tensors,
                    const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_sparse(std::vector<at::Tensor>& tensors,
                           const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(std::vector<at::Tensor>& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(std::vector<at::Tensor>& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(Lists& outputs, std::vector<at::Tensor>& inputs,
                    const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(Lists& outputs, std::vector<at::Tensor>& inputs,
                              const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(std::vector<at::Tensor>& outputs,
                                          std::vector<at::Tensor>& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr gather(Lists& outputs, std::vector<at::Tensor>& inputs,
                 const c10d::GatherOptions& options) override;
  WorkPtr scatter(std::vector<at::Tensor>& outputs, Lists& inputs,
                  const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(std::vector<at::Tensor>& outputs, Lists& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(std::vector<at::Tensor>& outputs,
                                          std::vector<at::Tensor>& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
                   const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& outputSizes,
                        std::vector<int64_t>& inputSizes,
                        const c10d::AllToAllOptions& options) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  WorkPtr send(std::vector<at::Tensor>& tensors, int to, int tag) override;
  WorkPtr recv(std::vector<at::Tensor>& tensors, int from, int tag) override;
  WorkPtr recvAnysource(std::vector<at::Tensor>& tensors, int tag) override;

 private:
  // The kind, the title and the time limit of a call.
  struct Call {
    c10d::OpType type;
    const char* title;  // in Torch's profiler
    std::chrono::milliseconds timeout = c10d::kUnsetTimeout;
  };
  using OperandsPtr = std::shared_ptr<Operands>;
  using Submit = std::function<Status(CoreGroup&, CoreTerms)>;
  using PendingPtr = c10::intrusive_ptr<PendingWork>;

  PendingPtr makeWork(const Call& call, std::vector<at::Tensor> inputs,
                      std::vector<at::Tensor> outputs);
  void submit(const Call& call, const PendingPtr& work, const OperandsPtr& operands, Submit what);
  WorkPtr exchange(const Call& call, table::ExchangeKind kind, std::vector<CoreLeg> legs,
                   const OperandsPtr& operands, std::vector<at::Tensor> inputs,
                   std::vector<at::Tensor> outputs);
  WorkPtr allReduce(const Call& call, const at::Tensor& flat, Reduction reduction,
                    const OperandsPtr& operands, const std::vector<at::Tensor>& tensors);
  OperandsPtr newOperands();
  WorkPtr receive(const Call& call, std::vector<at::Tensor>& tensors, std::optional<Rank> from,
                  int tag);
  Rank checkRank(int64_t rank) const;
  uint32_t self() const { return static_cast<uint32_t>(rank_); }
  size_t world() const { return static_cast<size_t>(size_); }

  const std::shared_ptr<BackendLink> connection_;
  const std::function<void(BackendLink&)> close_;
  const std::function<void()> interrupt_;
  const c10::intrusive_ptr<Options> options_;
  std::atomic<uint64_t> sequence_ = 0;
};

}  // namespace sluice::pytorch
