#include <sluice/data/codec/error_feedback.h>

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include <sluice/base/check.h>
#include <sluice/data/kernel/element.h>
#include <sluice/data/kernel/level.h>

namespace sluice::codec {
namespace {

struct AddTo final {
  SLUICE_KERNEL static void run(float* __restrict owed, const std::byte* __restrict gradients,
                                size_t count) {
    for (size_t i = 0; i < count; ++i) owed[i] += kernel::loadAt<float>(gradients, i);
  }
};

struct KeepRest final {
  SLUICE_KERNEL static void run(float* __restrict owed, const std::byte* __restrict sent,
                                size_t count) {
    constexpr uint32_t kInfinity = 0x7f800000U;
    for (size_t i = 0; i < count; ++i) {
      // A rest that is not finite is not owed. It would come back in every later step, long
      // after the gradient that it is from.
      const auto left = std::bit_cast<uint32_t>(owed[i] - kernel::loadAt<float>(sent, i));
      owed[i] = std::bit_cast<float>((left & kInfinity) == kInfinity ? 0U : left);
    }
  }
};

}  // namespace

void ErrorFeedback::apply(std::span<std::byte> gradients) {
  SLUICE_CHECK(gradients.size() == owed_.size() * sizeof(float), gradients.size(), owed_.size());
  // Work on a piece at a time, which stays in the cache over all passes.
  constexpr size_t kAtOnce = 64 * kBlock;
  for (size_t first = 0; first < owed_.size(); first += kAtOnce) {
    const auto owed = std::span(owed_).subspan(first, std::min(kAtOnce, owed_.size() - first));
    applyTo(owed, gradients.subspan(first * sizeof(float), owed.size_bytes()));
  }
}

void ErrorFeedback::applyTo(std::span<float> owed, std::span<std::byte> gradients) {
  const auto level = kernel::bestLevel();
  kernel::run<AddTo>(level, owed.data(), gradients.data(),
                     owed.size());  // now the sum that is to be sent
  encoded_.resize(codec_.encodedBytes(owed.size()));
  codec_.encode(std::as_bytes(owed), encoded_);
  // The gradient leaves as exactly what the codec can carry, so that encoding it again on its
  // way loses nothing more: all that is lost is counted here.
  codec_.decode(encoded_, gradients);
  kernel::run<KeepRest>(level, owed.data(), gradients.data(), owed.size());
}

Status ErrorFeedback::restore(std::span<const float> owed) {
  if (owed.size() != owed_.size()) {
    return {Code::kInvalidArgument,
            fmt::format("the checkpoint holds the codec's rest of {} elements, but this model has "
                        "{}; use a checkpoint of this model",
                        owed.size(), owed_.size())};
  }
  owed_.assign(owed.begin(), owed.end());
  return base::ok();
}

}  // namespace sluice::codec
