// The names of a model's tensors, by which gates and their errors name what is waited for.
#pragma once

#include <string>
#include <vector>

#include <sluice/model.h>

namespace sluice::gate {

// Returns the names in the order of the tensors' ids.
inline std::vector<std::string> tensorNames(const Model& model) {
  std::vector<std::string> names;
  names.reserve(model.tensors.size());
  for (const Tensor& tensor : model.tensors) names.push_back(tensor.name);
  return names;
}

}  // namespace sluice::gate
