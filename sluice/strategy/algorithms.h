// The list of algorithms. `--algorithm NAME` picks one.
#pragma once

#include <span>
#include <string_view>

#include <sluice/base/status.h>
#include <sluice/strategy/strategy.h>

namespace sluice::strategy {

extern const Algorithm kKvstore;
extern const Algorithm kSlicing;
extern const Algorithm kP3;
extern const Algorithm kSluice;
extern const Algorithm kAllreduce;
extern const Algorithm kWfbp;
extern const Algorithm kMgwfbp;
extern const Algorithm kPipe;
extern const Algorithm kMgp3;

std::span<const Algorithm* const> algorithms();

// Never null; an unknown name is an error that names the nearest one.
Result<const Algorithm*> findAlgorithm(std::string_view name);

}  // namespace sluice::strategy
