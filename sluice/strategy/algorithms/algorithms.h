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
extern const Algorithm kAsp;
extern const Algorithm kSsp;
extern const Algorithm kEasgd;
extern const Algorithm kGoSgd;
extern const Algorithm kAdPsgd;

std::span<const Algorithm* const> algorithms();

// Says what an algorithm would otherwise leave unheeded: --dgc, --survive-loss.
Status checkHeeded(const base::Config& config, const plan::PlanSpec& chosen);

// By its name or alias. Never null; an unknown name is an error that lists those there are.
Result<const Algorithm*> findAlgorithm(std::string_view name);

// The same for what a user writes: "ssp:3" is ssp with its option, staleness, set to 3 in `config`.
Result<const Algorithm*> readAlgorithm(std::string_view text, base::Config& config);

}  // namespace sluice::strategy
