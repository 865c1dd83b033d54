#include <sluice/algorithms/reduction/packing.h>

#include <algorithm>
#include <cstring>

#include <sluice/base/check.h>
#include <sluice/data/kernel/element.h>
#include <sluice/data/kernel/reduce.h>

namespace sluice::algorithms {

Packing::Packing(std::span<const Tensor> tensors, bool isMean, const codec::Codec* codec)
    : own_(tensors.front().dtype), wire_(wireTypeOf(own_, isMean)) {
  size_t elements = 0;
  for (const Tensor& tensor : tensors) {
    SLUICE_CHECK(tensor.dtype == own_, tensor.name);
    begins_.push_back(elements * sizeOf(wire_));
    sizes_.push_back(tensor.elements * sizeOf(wire_));
    elements += tensor.elements;
  }
  if (codec != nullptr) {
    // The flags start a block of their own: in a block with large gradients its scale would round
    // them away.
    elements = (elements + codec::kBlock - 1) / codec::kBlock * codec::kBlock;
  }
  flags_ = elements * sizeOf(wire_);
  data_->resize(flags_ + tensors.size() * sizeOf(wire_));
}

DType Packing::wireTypeOf(DType own, bool isMean) {
  return isMean ? own : kernel::accumulatorOf(own);
}

void Packing::put(size_t place, std::span<const std::byte> gradient) {
  // Three ways lead into the buffer: widened, copied, or not at all, if the gradient was staged
  // straight to its part (targetFor).
  if (own_ != wire_) {
    kernel::widen(own_, part(place), gradient);
  } else if (gradient.data() != part(place).data()) {
    std::memcpy(part(place).data(), gradient.data(), gradient.size());
  }
  setFlag(place, 1);
}

void Packing::putNothing(size_t place) {
  std::ranges::fill(part(place), std::byte{0});
  setFlag(place, 0);
}

void Packing::finish(codec::ErrorFeedback* feedback) {
  if (feedback != nullptr) feedback->apply(data().first(flags_));
}

void Packing::putMean(size_t place, std::span<const std::byte> mean) {
  SLUICE_CHECK(mean.size() == sizes_[place], mean.size(), sizes_[place]);
  std::memcpy(part(place).data(), mean.data(), mean.size());
  setFlag(place, 1);
}

// A mean of flags is exactly 0 only if no rank set one: a single 1 over any number of ranks
// stays above 0 in every type that travels.
bool Packing::isEmpty(size_t place) const {
  const auto bytes = data().subspan(flags_ + place * sizeOf(wire_), sizeOf(wire_));
  return kernel::withElement(
      wire_, [&]<typename Element>(Element) { return !(Element::load(bytes.data(), 0) > 0); });
}

void Packing::setFlag(size_t place, float value) {
  kernel::withElement(wire_, [&]<typename Element>(Element) {
    Element::store(data().data() + flags_, place, static_cast<typename Element::Compute>(value));
  });
}

std::vector<timing::Group> splitByType(const Model& model, std::span<const timing::Group> groups) {
  std::vector<timing::Group> split;
  for (const timing::Group& group : groups) {
    split.push_back(group);
    for (size_t t = group.first; t < group.last; ++t) {
      if (model.tensors[t].dtype == model.tensors[t + 1].dtype) continue;
      split.back().last = t;
      split.push_back({t + 1, group.last});
    }
  }
  return split;
}

}  // namespace sluice::algorithms
