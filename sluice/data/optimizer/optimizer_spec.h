// The optimizer of a job and the hyperparameters that it begins with, as a value that can be
// written on a command line and agreed on by hash: "sgd:lr=0.1,momentum=0.9". Pure functions, any
// thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <sluice/base/status.h>
#include <sluice/data/optimizer/optimizer.h>

namespace sluice::optimizer {

struct OptimizerSpec final {
  const Optimizer* optimizer;  // one of optimizers(); never null
  std::vector<double> values;  // in the order of optimizer->hyperparameters()

  friend bool operator==(const OptimizerSpec&, const OptimizerSpec&) = default;
};

// "NAME" or "NAME:KEY=VALUE,..."; a hyperparameter that is not named has PyTorch's default.
// Switches also take true and false.
Result<OptimizerSpec> parseOptimizerSpec(std::string_view text);

// Returns the one text of a spec: every hyperparameter, in the list's order, with as many digits as
// it needs. Equal specs have equal texts, so this text goes into the Plan's hash.
// parseOptimizerSpec() gives the spec back.
std::string canonicalText(const OptimizerSpec& spec);

}  // namespace sluice::optimizer
