// The tensors of a replay: numbers that every process can make again, so that one of them can check
// what all have computed together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <sluice/algorithms/strategy.h>
#include <sluice/data/optimizer/optimizer_spec.h>
#include <sluice/data/plan/model.h>

namespace sluice::bench {

// Gradients and parameters of a worker. They are written before they are used, so that no page is
// new to the first iterations. Gradients differ from rank to rank, so that a sum that lacks one is
// noticed. Belongs to its owner.
class ReplayMemory final {
 public:
  ReplayMemory(const Model& model, Rank rank);

  std::vector<TensorMemory> tensors();
  std::string parametersHash() const;

 private:
  std::vector<std::vector<float>> gradients_;
  std::vector<std::vector<float>> parameters_;
};

// Returns the value that parametersHash() of every worker must have after `steps` steps. One
// process computes it, without slices and without a network: it takes the mean over the workers in
// rank order and applies the update to whole tensors.
std::string referenceHash(const Model& model, const std::vector<Rank>& workers,
                          const optimizer::OptimizerSpec& update, int steps);

}  // namespace sluice::bench
