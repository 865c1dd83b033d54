#include <sluice/algorithms/slices.h>

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include <sluice/base/options.h>
#include <sluice/data/kernel/reduce.h>
#include <sluice/transport/fabric/common.h>

namespace sluice::algorithms {

uint64_t shrunk(const base::Config& config, uint64_t size) {
  const auto divisor = static_cast<uint64_t>(std::max<int64_t>(config.integer(option::kShrink), 1));
  return std::max<uint64_t>(size / divisor, 1);
}

void chooseWholeTensors(const base::Config& config, plan::PlanSpec& spec) {
  spec.slicing.placement = plan::Placement::kKvstore;
  spec.slicing.sliceElements = shrunk(config, plan::kKvstoreSplitFrom);
}

Status chooseSlices(const base::Config& config, plan::Placement placement, uint64_t preferred,
                    plan::PlanSpec& spec) {
  const auto wanted = static_cast<uint64_t>(config.integer(option::kSliceElements));
  spec.slicing.placement = placement;
  spec.slicing.sliceElements = shrunk(config, wanted == 0 ? preferred : wanted);
  spec.slicing.minMessageElements = shrunk(config, plan::Slicing{}.minMessageElements);
  return base::ok();
}

Status checkUpdate(const Context& context) {
  if (context.update.optimizer->publishes() != optimizer::Publishes::kParameters) {
    return {
        Code::kInvalidArgument,
        fmt::format(
            "{} has no mean gradient for another optimizer: let sluice make the step, by SGD, Adam "
            "or AdamW (in PyTorch: server_optimizer=True)",
            context.plan.spec().strategy)};
  }
  for (const auto& tensor : context.plan.model().tensors) {
    if (const Status status = kernel::checkArithmetic(tensor.dtype); !status.isOk())
      return status.withContext(fmt::format("tensor '{}'", tensor.name));
  }
  return base::ok();
}

Status checkSlice(const plan::Plan& plan, const wire::Header& header) {
  if (index(header.slice) >= plan.slices().size())
    return fabric::refusedStatus(header, "no such slice");
  // Both numbers come from the wire and index vectors from here on.
  if (header.tensor != plan.slice(header.slice).tensor)
    return fabric::refusedStatus(header, "the slice is of another tensor");
  return base::ok();
}

Status checkSliceAndType(const plan::Plan& plan, const wire::Header& header) {
  SLUICE_RETURN_IF_ERROR(checkSlice(plan, header));
  if (header.dtype != plan.model()[header.tensor].dtype)
    return fabric::refusedStatus(header, "the tensor is of another type");
  return base::ok();
}

std::string describeMissing(const plan::Plan& plan, TensorId tensor, size_t left,
                            const std::function<bool(SliceId)>& isMissing) {
  const auto slices = plan.slicesOf(tensor);
  std::map<Rank, size_t> missingFrom;
  for (const plan::Slice& slice : slices) {
    if (isMissing(slice.id)) ++missingFrom[slice.server];
  }
  std::string text = fmt::format("{} of {} slices missing", left, slices.size());
  for (const auto& [server, count] : missingFrom)
    text += fmt::format(", {} from server rank {}", count, server);
  return text;
}

Status inPieces(Loop& loop, size_t count, const std::function<size_t(size_t)>& work) {
  // Each piece is a task of its own, and the caller waits for it: the loop runs whatever else
  // has come between two pieces. The counter lives in the caller's frame, which is safe because
  // runAndWait() returns only when the task can run no more.
  for (size_t next = 0; next < count;) {
    SLUICE_RETURN_IF_ERROR(fabric::runAndWait(loop, [&] {
      for (size_t bytes = 0; next < count && bytes < kPieceBytes;) bytes += work(next++);
    }));
  }
  return base::ok();
}

}  // namespace sluice::algorithms
