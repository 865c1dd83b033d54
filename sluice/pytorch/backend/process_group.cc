#include <sluice/pytorch/backend/process_group.h>

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <cstring>
#include <memory>
#include <utility>

#include <sluice/model.h>

#include <sluice/pytorch/table_status.h>

namespace sluice::pytorch {
namespace {

// A call under way, with its own copy of the data.
struct Underway {
  at::Tensor tensor;
  c10::intrusive_ptr<c10d::Work> work{};
};

at::ScalarType scalarType(DType dtype) {
  switch (dtype) {
    case DType::kF32: return at::kFloat;
    case DType::kF64: return at::kDouble;
    case DType::kBF16: return at::kBFloat16;
    case DType::kF16: return at::kHalf;
    case DType::kBytes: break;
  }
  return at::kByte;
}

at::Tensor copyOf(table::Memory data, DType dtype) {
  auto copy = at::empty({static_cast<int64_t>(data.size / sizeOf(dtype))}, scalarType(dtype));
  if (data.size > 0) std::memcpy(copy.data_ptr(), data.data, data.size);
  return copy;
}

c10d::ProcessGroup& groupAt(void* group) {
  return **static_cast<const GroupPtr*>(group);
}

// Calls the group, and reports its end from whatever thread it comes. `launch` gets the tensors. The
// group's errors are exceptions, which end here.
template <typename Launch>
void begin(at::Tensor tensor, const table::Ended& ended, table::GroupCall* out, table::Error* error,
           Launch&& launch) {
  table::guarded(error, [&, tell = table::takeEnded(ended)] {
    auto underway = std::make_shared<Underway>(Underway{std::move(tensor)});
    std::vector<at::Tensor> tensors{underway->tensor};
    underway->work = launch(tensors);
    underway->work->getFuture()->addCallback([tell](c10::ivalue::Future& future) {
      tell(future.hasError() ? Status(Code::kUnavailable, "the process group failed: " +
                                                              future.tryRetrieveErrorMessage())
                             : Status());
    });
    void* const piece = underway.get();
    *out = {piece, table::Owner::of(std::move(underway))};
    return Status();
  });
}

void allReduce(void* group, table::Memory data, int32_t dtype, double scale, table::Ended ended,
               table::GroupCall* out, table::Error* error) {
  auto tensor = copyOf(data, static_cast<DType>(dtype));
  if (scale != 1) {
    const at::AutoDispatchBelowADInplaceOrView noGradients;
    tensor.mul_(scale);
  }
  begin(std::move(tensor), ended, out, error,
        [&](auto& tensors) { return groupAt(group).allreduce(tensors); });
}

void broadcast(void* group, table::Memory data, uint32_t root, table::Ended ended,
               table::GroupCall* out, table::Error* error) {
  c10d::BroadcastOptions options;
  options.rootRank = root;
  begin(copyOf(data, DType::kBytes), ended, out, error,
        [&](auto& tensors) { return groupAt(group).broadcast(tensors, options); });
}

void takeResult(void* piece, table::Memory to) {
  if (to.size > 0) std::memcpy(to.data, static_cast<Underway*>(piece)->tensor.data_ptr(), to.size);
}

}  // namespace

table::ProcessGroup giveProcessGroup(const GroupPtr& group) {
  return {const_cast<GroupPtr*>(&group),  // NOLINT: C has no other type
          static_cast<uint32_t>(group->getSize()), allReduce, broadcast, takeResult};
}

}  // namespace sluice::pytorch
