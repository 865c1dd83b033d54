#include <tools/bench/replay_memory.h>

#include <array>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sodium.h>

#include <sluice/base/check.h>
#include <sluice/data/kernel/reduce.h>

namespace sluice::bench {
namespace {

// Numbers between -0.5 and 0.5, the same in every process; any pattern would do.
class Numbers final {
 public:
  explicit Numbers(uint32_t seed) : seed_(seed) {}

  std::vector<float> take(uint64_t count) {
    std::vector<float> values(count);
    for (float& value : values) {
      seed_ = seed_ * 1664525U + 1013904223U;
      value = static_cast<float>(seed_ >> 8) / static_cast<float>(1U << 24) - 0.5F;
    }
    return values;
  }

 private:
  uint32_t seed_;
};

Numbers parameterNumbers() {
  return Numbers(1);
}
Numbers gradientNumbers(Rank rank) {
  return Numbers(0x9e3779b9U * (index(rank) + 2));
}

class ParametersHash final {
 public:
  ParametersHash() {
    SLUICE_CHECK(sodium_init() >= 0);
    crypto_generichash_init(&state_, nullptr, 0, crypto_generichash_BYTES);
  }
  void add(const std::vector<float>& tensor) {
    crypto_generichash_update(&state_, reinterpret_cast<const unsigned char*>(tensor.data()),
                              tensor.size() * sizeof(float));
  }
  std::string finish() {
    std::array<unsigned char, crypto_generichash_BYTES> hash{};
    crypto_generichash_final(&state_, hash.data(), hash.size());
    return fmt::format("{:02x}", fmt::join(hash, ""));
  }

 private:
  crypto_generichash_state state_{};
};

}  // namespace

ReplayMemory::ReplayMemory(const Model& model, Rank rank) {
  Numbers parameters = parameterNumbers();
  Numbers gradients = gradientNumbers(rank);
  for (const auto& tensor : model.tensors) {
    parameters_.push_back(parameters.take(tensor.elements));
    gradients_.push_back(gradients.take(tensor.elements));
  }
}

std::vector<TensorMemory> ReplayMemory::tensors() {
  std::vector<TensorMemory> tensors;
  for (size_t t = 0; t < gradients_.size(); ++t) {
    tensors.push_back({std::as_bytes(std::span(gradients_[t])),
                       std::as_writable_bytes(std::span(parameters_[t]))});
  }
  return tensors;
}

std::string ReplayMemory::parametersHash() const {
  ParametersHash hash;
  for (const auto& parameters : parameters_) hash.add(parameters);
  return hash.finish();
}

std::string referenceHash(const Model& model, const std::vector<Rank>& workers,
                          const optimizer::OptimizerSpec& update, int steps) {
  ParametersHash hash;
  Numbers parameterSource = parameterNumbers();
  std::vector<Numbers> gradientSources;
  for (const Rank worker : workers) gradientSources.push_back(gradientNumbers(worker));
  const double scale = kernel::meanScale(workers.size());
  for (const auto& tensor : model.tensors) {
    std::vector<float> parameters = parameterSource.take(tensor.elements);
    std::vector<float> mean(tensor.elements);
    const auto sum = std::as_writable_bytes(std::span(mean));
    for (size_t w = 0; w < workers.size(); ++w) {
      const std::vector<float> gradient = gradientSources[w].take(tensor.elements);
      const auto add = w == 0 ? kernel::setScaled : kernel::addScaled;
      add(tensor.dtype, sum, std::as_bytes(std::span(gradient)), scale, kernel::bestLevel());
    }
    optimizer::OptimizerState state(update.optimizer->name(), tensor.dtype, tensor.elements);
    for (int step = 0; step < steps; ++step) {
      const Status applied =
          applyStep(*update.optimizer, state, std::as_writable_bytes(std::span(parameters)), sum,
                    update.values);
      SLUICE_CHECK(applied.isOk(), applied.toString());
    }
    hash.add(parameters);
  }
  return hash.finish();
}

}  // namespace sluice::bench
