// All-reduce by deep gradient compression (codec/dgc.h): every worker sends the few largest of what its
// gradients have accumulated to every other, as each tensor becomes ready, and each sums for itself, in rank
// order. So all ranks have the same parameters, bit for bit.
#pragma once

#include <memory>

#include <sluice/strategy/strategy.h>

namespace sluice::strategy {

// Takes the options that begin with dgc. Refuses tensors that are not f32, and another codec besides.
Status chooseSparseAllgather(const Config& config, plan::PlanSpec& spec);

// True iff the plan was made by chooseSparseAllgather().
bool isSparse(const plan::PlanSpec& spec);

// The update is SGD, whose momentum is made before compression. Refuses others.
Result<std::unique_ptr<Strategy>> makeSparseAllgather(const Rooms& rooms);

}  // namespace sluice::strategy
