#include <sluice/algorithms/server/outcomes.h>

#include <sluice/base/check.h>

namespace sluice::algorithms {

void Outcomes::begin(TensorId tensor, Step step, size_t slices) {
  OneTensor& here = tensors_[index(tensor)];
  here.step = step;
  here.slicesLeft = slices;
  here.hasResult = false;
  here.without.clear();
}

bool Outcomes::add(const plan::Slice& slice, bool hasResult) {
  OneTensor& here = tensors_[index(slice.tensor)];
  // A tensor's gate opens with a result if any slice has one; the slices without one then count
  // as updated by nothing, their bytes being as they were. So their outcome is known only at
  // the end, and a sink, which copies results to a device, must not hear of them before.
  if (hasResult) {
    here.hasResult = true;
    context_.resultIsHere(slice, here.step, slice.server);
  } else if (context_.results == nullptr) {
    context_.sliceHasNoResult(slice, here.step, slice.server);
  } else {
    here.without.push_back(slice.id);
  }
  return --here.slicesLeft == 0;
}

void Outcomes::open(TensorId tensor) {
  OneTensor& here = tensors_[index(tensor)];
  SLUICE_DCHECK(here.slicesLeft == 0);
  for (const SliceId id : here.without) {
    const plan::Slice& slice = context_.plan.slice(id);
    if (here.hasResult) {
      context_.resultIsHere(slice, here.step, slice.server);
    } else {
      context_.sliceHasNoResult(slice, here.step, slice.server);
    }
  }
  if (here.hasResult) return context_.gates.open(tensor, here.step);
  context_.noResultComes(tensor, here.step);
  context_.gates.openEmpty(tensor, here.step);
}

}  // namespace sluice::algorithms
