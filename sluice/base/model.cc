#include <sluice/model.h>

#include <numeric>

#include <fmt/format.h>

#include <sluice/base/units.h>

namespace sluice {

std::string Tensor::toString() const {
  return fmt::format("'{}' {} {}", name, elements, sluice::name(dtype));
}

uint64_t Model::elements() const {
  return std::accumulate(tensors.begin(), tensors.end(), uint64_t{0},
                         [](uint64_t sum, const Tensor& t) { return sum + t.elements; });
}

uint64_t Model::bytes() const {
  return std::accumulate(tensors.begin(), tensors.end(), uint64_t{0},
                         [](uint64_t sum, const Tensor& t) { return sum + t.bytes(); });
}

std::string Model::toString() const {
  return fmt::format("{} tensors, {} elements, {}", tensors.size(), elements(),
                     base::formatBytes(bytes()));
}

}  // namespace sluice
