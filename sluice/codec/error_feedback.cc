#include <sluice/codec/error_feedback.h>

#include <cmath>

#include <fmt/format.h>

#include <sluice/base/check.h>
#include <sluice/kernel/element.h>

namespace sluice::codec {

void ErrorFeedback::apply(std::span<std::byte> gradients) {
  SLUICE_CHECK(gradients.size() == owed_.size() * sizeof(float), gradients.size(), owed_.size());
  for (size_t i = 0; i < owed_.size(); ++i) {
    owed_[i] += kernel::loadAt<float>(gradients.data(), i);  // now the sum that is to be sent
  }
  encoded_.resize(codec_.encodedBytes(owed_.size()));
  codec_.encode(std::as_bytes(std::span(owed_)), encoded_);
  codec_.decode(encoded_, gradients);
  for (size_t i = 0; i < owed_.size(); ++i) {
    const float left = owed_[i] - kernel::loadAt<float>(gradients.data(), i);
    owed_[i] = std::isfinite(left) ? left : 0.0F;
  }
}

Status ErrorFeedback::restore(std::span<const float> owed) {
  if (owed.size() != owed_.size()) {
    return {Code::kInvalidArgument,
            fmt::format("the checkpoint owes {} elements, this model has {}", owed.size(), owed_.size())};
  }
  owed_.assign(owed.begin(), owed.end());
  return base::ok();
}

}  // namespace sluice::codec
