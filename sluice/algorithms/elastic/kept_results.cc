#include <sluice/algorithms/elastic/kept_results.h>

#include <cstring>

#include <sluice/base/check.h>

namespace sluice::algorithms {

KeptResults::KeptResults(const plan::Plan& plan) {
  // All memory is taken at the beginning, as much as the model has. A host that is too small
  // for it shows that before training.
  slices_.reserve(plan.slices().size());
  for (const plan::Slice& slice : plan.slices())
    slices_.push_back({std::vector<std::byte>(plan.bytesOf(slice))});
}

std::span<std::byte> KeptResults::landing(SliceId slice) {
  slices_[index(slice)].isLanding = true;
  return slices_[index(slice)].bytes;
}

std::span<const std::byte> KeptResults::landed(SliceId slice, Epoch made) {
  Slice& here = slices_[index(slice)];
  count(here, made, /*isEmpty=*/false);
  return here.bytes;
}

void KeptResults::store(SliceId slice, Epoch made, std::span<const std::byte> result) {
  Slice& here = slices_[index(slice)];
  SLUICE_DCHECK(result.size() == here.bytes.size());
  std::memcpy(here.bytes.data(), result.data(), result.size());
  count(here, made, /*isEmpty=*/false);
}

void KeptResults::storeEmpty(SliceId slice, Epoch made) {
  count(slices_[index(slice)], made, /*isEmpty=*/true);
}

void KeptResults::count(Slice& slice, Epoch made, bool isEmpty) {
  slice.isLanding = false;
  slice.last = {.steps = slice.last.steps + 1, .made = made, .isEmpty = isEmpty};
}

void KeptResults::abandonLandings() {
  for (Slice& slice : slices_) slice.isLanding = false;
}

}  // namespace sluice::algorithms
