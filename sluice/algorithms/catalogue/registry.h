// The list of algorithms. `--algorithm NAME` picks one.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include <sluice/algorithms/catalogue/algorithm.h>
#include <sluice/base/status.h>

namespace sluice::algorithms {

std::span<const Algorithm* const> algorithms();

// Returns the options that some algorithm takes besides the general ones, each once.
std::vector<const base::Option*> algorithmOptions();

// Rejects options that the chosen algorithm would silently ignore: --dgc and --survive-loss
// wherever they come from, and options of other algorithms that a program or a flag gave.
Status rejectIgnoredOptions(const base::Config& config, const plan::PlanSpec& chosen);

// Finds an algorithm by its name or alias. Never null; an unknown name is an error that lists those
// there are.
Result<const Algorithm*> findAlgorithm(std::string_view name);

// findAlgorithm() for what a user writes: "ssp:3" is ssp with its option, staleness, set to 3 in
// `config`.
Result<const Algorithm*> readAlgorithm(std::string_view text, base::Config& config);

}  // namespace sluice::algorithms
