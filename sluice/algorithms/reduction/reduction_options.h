// The options of algorithms that all-reduce.
#pragma once

#include <array>

#include <sluice/base/option.h>

namespace sluice::base::option {

inline constexpr Option kCodec =
    sameOnAllRanks({"codec", Kind::kChoice, "none",
                    "How all-reduces shrink f32 gradients on their way", "none|fp16|bf16|int8"});
inline constexpr Option kCollective =
    sameOnAllRanks({"collective", Kind::kChoice, "direct",
                    "How all-reduces go: direct has the parameter servers' bits, the others sum in "
                    "another order; auto: "
                    "each as collective-costs says",
                    "auto|direct|ring|halving-doubling"});
inline constexpr Option kCollectiveCosts = sameOnAllRanks(
    {"collective-costs", Kind::kText, "",
     "What all-reduces cost by method, for --collective auto; 'sluice bench collective "
     "--network' writes it"});
inline constexpr Option kComputeTime = sameOnAllRanks(
    {"compute-time", Kind::kDuration, "100ms",
     "mgwfbp, mgp3: how long one forward and backward pass takes, without any waiting"});
inline constexpr Option kErrorFeedback = sameOnAllRanks(
    {"error-feedback", Kind::kSwitch, "on",
     "codec, dgc: add to the next step's gradients what compression has taken away; off: lose it"});
inline constexpr Option kLayerTimes = sameOnAllRanks(
    {"layer-times", Kind::kText, "",
     "mgwfbp, mgp3: the profile with this model's layer times; without one, time goes by size"});
inline constexpr Option kMerge = sameOnAllRanks(
    {"merge", Kind::kChoice, "exact",
     "mgwfbp: how tensors are merged: exact is the best there is, paper is the published algorithm",
     "exact|paper"});
inline constexpr Option kReductionRate =
    sameOnAllRanks({"reduction-rate", Kind::kRate, "1gbit",
                    "mgwfbp, mgp3: the speed of each rank's link, which decides what an all-reduce "
                    "costs per byte"});
inline constexpr Option kReductionStart =
    sameOnAllRanks({"reduction-start", Kind::kDuration, "500us",
                    "mgwfbp, mgp3: what an all-reduce costs besides its bytes"});
inline constexpr Option kReductions = sameOnAllRanks(
    {"reductions", Kind::kInteger, "1", "How many all-reduces are under way at once"});
inline constexpr Option kReplanSteps = sameOnAllRanks(
    {"replan-steps", Kind::kInteger, "100",
     "mgwfbp: every so many steps merge anew, if what was measured says that it pays; 0: never"});

}  // namespace sluice::base::option

namespace sluice {
namespace option = base::option;
}  // namespace sluice

namespace sluice::algorithms {

inline constexpr std::array kReductionOptions{&option::kCodec, &option::kCollective,
                                              &option::kCollectiveCosts, &option::kErrorFeedback,
                                              &option::kReductions};

// Options for algorithms that merge tensors into groups; the costs that decide the merging come
// from them.
inline constexpr std::array kMergingOptions{&option::kComputeTime, &option::kLayerTimes,
                                            &option::kReductionRate, &option::kReductionStart};

}  // namespace sluice::algorithms
