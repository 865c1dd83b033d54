#include <sluice/strategy/slices.h>

#include <map>

#include <fmt/format.h>

#include <sluice/fabric/common.h>

namespace sluice::strategy {

Status checkSlice(const plan::Plan& plan, const wire::Header& header) {
  if (index(header.slice) >= plan.slices().size()) return fabric::refusedStatus(header, "no such slice");
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

}  // namespace sluice::strategy
