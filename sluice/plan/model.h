// What is synchronised: the tensors of a model in the order in which the forward pass uses them. Plain
// values, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <sluice/base/status.h>
#include <sluice/plan/dtype.h>
#include <sluice/plan/ids.h>

namespace sluice::plan {

struct Tensor {
  std::string name{};
  uint64_t elements = 0;
  DType dtype = DType::kF32;

  uint64_t bytes() const { return elements * sizeOf(dtype); }
  std::string toString() const;  // "'conv1.weight' 9408 f32"
  friend bool operator==(const Tensor&, const Tensor&) = default;
};

struct Model {
  std::vector<Tensor> tensors{};  // index = TensorId = place in the forward pass

  const Tensor& operator[](TensorId id) const { return tensors[index(id)]; }
  uint64_t elements() const;
  uint64_t bytes() const;
  std::string toString() const;  // "161 tensors, 25557032 elements, 97.5 MiB"
  friend bool operator==(const Model&, const Model&) = default;
};

// What a model may be at most. The limits keep every sum of sizes inside 64 bits and a plan that came over
// the network from asking for absurd memory.
inline constexpr size_t kMaxTensors = 1'000'000;
inline constexpr size_t kMaxNameBytes = 4096;
inline constexpr uint64_t kMaxTensorElements = uint64_t{1} << 40;

// At least one tensor, none empty, all within the limits.
Status check(const Model& model);

}  // namespace sluice::plan

namespace sluice {
using plan::Model;
using plan::Tensor;
}  // namespace sluice
