#include <sluice/data/plan/model.h>

#include <fmt/format.h>

#include <sluice/base/status.h>

namespace sluice::plan {

Status check(const Model& model) {
  const auto invalid = [](std::string text) {
    return Status(Code::kInvalidArgument, std::move(text));
  };
  if (model.tensors.empty())
    return invalid("the model has no tensors: there is nothing to synchronise");
  if (model.tensors.size() > kMaxTensors) {
    return invalid(fmt::format("the model has {} tensors; at most {} are supported",
                               model.tensors.size(), kMaxTensors));
  }
  for (size_t i = 0; i < model.tensors.size(); ++i) {
    const Tensor& tensor = model.tensors[i];
    if (tensor.name.size() > kMaxNameBytes) {
      return invalid(fmt::format("the name of tensor {} has {} bytes; at most {} are supported", i,
                                 tensor.name.size(), kMaxNameBytes));
    }
    // A tensor without elements would have no slice, and so no result that opens its gate.
    if (tensor.elements == 0) {
      return invalid(
          fmt::format("tensor {} '{}' has no elements: leave it out of the model", i, tensor.name));
    }
    if (tensor.elements > kMaxTensorElements) {
      return invalid(fmt::format("tensor {} '{}' has {} elements; at most {} are supported", i,
                                 tensor.name, tensor.elements, kMaxTensorElements));
    }
    if (sizeOf(tensor.dtype) == 0) {
      return invalid(fmt::format("tensor {} '{}' has the unknown type {}", i, tensor.name,
                                 static_cast<unsigned>(tensor.dtype)));
    }
  }
  return base::ok();
}

}  // namespace sluice::plan
