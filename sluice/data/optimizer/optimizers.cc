#include <sluice/data/optimizer/optimizers.h>

#include <array>
#include <string>

namespace sluice::optimizer {

std::span<const Optimizer* const> optimizers() {
  static const std::array<const Optimizer*, 4> kAll{
      &meanGradient(),
      &sgd(),
      &adam(),
      &adamW(),
  };
  return kAll;
}

Result<const Optimizer*> findOptimizer(std::string_view name) {
  std::string known;
  for (const Optimizer* optimizer : optimizers()) {
    if (optimizer->name() == name) return optimizer;
    known += known.empty() ? "" : ", ";
    known += optimizer->name();
  }
  return Status(Code::kInvalidArgument,
                fmt::format("there is no optimizer '{}'; use one of {}", name, known));
}

}  // namespace sluice::optimizer
