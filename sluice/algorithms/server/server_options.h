// The options of algorithms with servers, which leave out one optimisation or another, and their
// form in the plan. Pure functions, any thread.
#pragma once

#include <array>
#include <cstdint>

#include <sluice/base/config.h>
#include <sluice/base/option.h>
#include <sluice/base/status.h>
#include <sluice/data/plan/plan.h>

namespace sluice::base::option {

inline constexpr Option kNoOverlap = sameOnAllRanks(
    {"no-overlap", Kind::kSwitch, "off",
     "kvstore, slicing, p3, sluice, asp, ssp, easgd: push everything after backward, and begin "
     "forward when everything is back (kvstore: the papers' PS-Sync)"});
inline constexpr Option kOverlap = sameOnAllRanks(
    {"overlap", Kind::kSwitch, "off",
     "asp, ssp from PyTorch: send gradients during backward; servers hold them until step(), or "
     "drop them (C++ programs always send during backward)"});
inline constexpr Option kPlacement = sameOnAllRanks(
    {"placement", Kind::kChoice, "even",
     "sluice, asp, ssp, easgd: even spreads each layer over all servers; layers keeps each tensor "
     "on one server, the papers' layer-wise sharding",
     "even|layers"});
inline constexpr Option kUpdateRate{
    "update-rate", Kind::kRate, "0bit",
    "For measurements: a server's update of a slice takes its bytes / this rate (2GB/s), one slice "
    "after the other; 0bit: no longer than it takes"};

}  // namespace sluice::base::option

namespace sluice {
namespace option = base::option;
}  // namespace sluice

namespace sluice::algorithms {

// The options of servers that place as published, and of servers that also take --placement.
inline constexpr std::array kServerOptions{&option::kNoOverlap, &option::kUpdateRate};
inline constexpr std::array kShardedOptions{&option::kNoOverlap, &option::kPlacement,
                                            &option::kUpdateRate};

// Returns --update-rate; 0: updates take no time on the timeline (update_line.h).
base::Rate updateRate(const base::Config& config);

// Takes --no-overlap.
void chooseOverlap(const base::Config& config, plan::PlanSpec& spec);
// Returns false if nothing is pushed before backward has ended, and no gate opens before all may.
bool overlaps(const plan::PlanSpec& spec);

// Writes --overlap into the plan: whether parts leave before the training thread says that their
// step counts.
Status chooseEarlyParts(const base::Config& config, plan::PlanSpec& spec);
// True iff workers send their parts before the training thread's word on them.
bool sendsBeforeWord(const plan::PlanSpec& spec);

// Takes --no-overlap and --placement, and cuts into slices of `preferred` parameters unless the
// user wants others.
Status chooseSharded(const base::Config& config, uint64_t preferred, plan::PlanSpec& spec);

}  // namespace sluice::algorithms
