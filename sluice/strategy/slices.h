// What strategies that move slices share: a slice's part of its tensor, and the checks of a message about
// one.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include <sluice/base/status.h>
#include <sluice/plan/plan.h>
#include <sluice/wire/header.h>

namespace sluice::strategy {

template <typename Byte>
std::span<Byte> partOf(const plan::Plan& plan, std::span<Byte> tensor, const plan::Slice& slice) {
  return tensor.subspan(slice.offset * sizeOf(plan.model()[slice.tensor].dtype), plan.bytesOf(slice));
}

// Every slice that this rank serves has its part of these parameters: tensorOf(TensorId) are a tensor's.
template <typename Server, typename TensorOf>
void setServed(Server& server, const plan::Plan& plan, Rank self, const TensorOf& tensorOf) {
  for (const SliceId id : plan.slicesOn(self)) {
    const plan::Slice& slice = plan.slice(id);
    server.setParameters(id, partOf(plan, tensorOf(slice.tensor), slice));
  }
}

// Whether the message is about a slice that there is.
Status checkSlice(const plan::Plan& plan, const wire::Header& header);

// The same, and of the tensor's own type.
Status checkSliceAndType(const plan::Plan& plan, const wire::Header& header);

// "2 of 3 slices missing, 1 from server rank 0, 1 from server rank 2"
std::string describeMissing(const plan::Plan& plan, TensorId tensor, size_t left,
                            const std::function<bool(SliceId)>& isMissing);

}  // namespace sluice::strategy
