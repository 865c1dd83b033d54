// The options of deep gradient compression.
#pragma once

#include <array>

#include <sluice/algorithms/reduction/reduction_options.h>
#include <sluice/base/option.h>

namespace sluice::base::option {

inline constexpr Option kDgc =
    sameOnAllRanks({"dgc", Kind::kSwitch, "off",
                    "allreduce, wfbp, sluice, asp, ssp: send only the largest "
                    "of what gradients have accumulated (deep gradient "
                    "compression)"});
inline constexpr Option kDgcClip =
    sameOnAllRanks({"dgc-clip", Kind::kNumber, "0",
                    "dgc: clip gradients so that those of a step have about this norm; 0: do not"});
inline constexpr Option kDgcDenseBelow = sameOnAllRanks(
    {"dgc-dense-below", Kind::kInteger, "0",
     "dgc: tensors with fewer elements are sent whole, with plain momentum: biases and norms"});
inline constexpr Option kDgcMasking = sameOnAllRanks(
    {"dgc-masking", Kind::kSwitch, "on",
     "dgc: elements that are sent begin again without momentum (momentum factor masking)"});
inline constexpr Option kDgcSparsity = sameOnAllRanks(
    {"dgc-sparsity", Kind::kNumber, "0.999", "dgc: the share of each gradient that is kept back"});
inline constexpr Option kDgcWarmUp = sameOnAllRanks(
    {"dgc-warm-up", Kind::kInteger, "0",
     "dgc: steps in each of the four stages in which the sparsity rises, an epoch in the paper"});

}  // namespace sluice::base::option

namespace sluice {
namespace option = base::option;
}  // namespace sluice

namespace sluice::algorithms {

inline constexpr std::array kDgcOptions{
    &option::kDgc,         &option::kDgcClip,   &option::kDgcDenseBelow, &option::kDgcMasking,
    &option::kDgcSparsity, &option::kDgcWarmUp, &option::kErrorFeedback};

}  // namespace sluice::algorithms
