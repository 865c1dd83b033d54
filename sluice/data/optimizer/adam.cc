// Adam and AdamW, as torch.optim.Adam and torch.optim.AdamW without amsgrad. They differ in where
// weight decay goes.
#include <array>
#include <cmath>

#include <sluice/data/kernel/element.h>
#include <sluice/data/optimizer/optimizers.h>

namespace sluice::optimizer {
namespace {

enum AdamValue { kLr, kBeta1, kBeta2, kEps, kWeightDecay };
enum AdamBuffer { kAverage, kSquareAverage };
enum class Decay { kNone, kIntoGradient, kOffParameter };

// Replaces std::pow: the C library picks a version by CPU, and they may differ in the last bit.
double power(double base, uint64_t exponent) {
  double result = 1;
  for (; exponent != 0; exponent >>= 1U, base *= base) {
    if ((exponent & 1U) != 0) result *= base;
  }
  return result;
}

template <typename Compute>
struct AdamConstants final {
  // With Decay::kIntoGradient the weight of the parameter in the gradient; with kOffParameter the
  // factor by which the parameter shrinks.
  Compute weightDecay;
  Compute weight;  // of the gradient in its average: 1 - beta1
  Compute rest;    // 1 - weight, as rounded
  Compute beta2;
  Compute squareWeight;  // 1 - beta2
  Compute correction;    // sqrt(1 - beta2^t)
  Compute eps;
  Compute minusStep;  // -lr / (1 - beta1^t)
};

template <typename Element, Decay kDecay>
struct AdamStep final {
  using Compute = typename Element::Compute;
  using State = kernel::Accumulator<Element>;
  SLUICE_KERNEL static void run(std::byte* __restrict parameters,
                                const std::byte* __restrict gradients,
                                std::byte* __restrict averages,
                                std::byte* __restrict squareAverages, size_t count,
                                AdamConstants<Compute> c) {
    const bool light = c.weight < Compute{0.5};
    for (size_t i = 0; i < count; ++i) {
      Compute parameter = Element::load(parameters, i);
      Compute gradient = State::load(gradients, i);
      if constexpr (kDecay == Decay::kIntoGradient) gradient = gradient + parameter * c.weightDecay;
      if constexpr (kDecay == Decay::kOffParameter) parameter = parameter * c.weightDecay;

      // As torch.lerp, from the nearer end, so that a weight of 1 gives the gradient exactly.
      const Compute before = State::load(averages, i);
      const Compute distance = gradient - before;
      const Compute fromBefore = before + c.weight * distance;
      const Compute fromGradient = gradient - distance * c.rest;
      const Compute average = light ? fromBefore : fromGradient;
      State::store(averages, i, average);

      const Compute square =
          State::load(squareAverages, i) * c.beta2 + c.squareWeight * gradient * gradient;
      State::store(squareAverages, i, square);

      const Compute denominator = std::sqrt(square) / c.correction + c.eps;
      Element::store(parameters, i, parameter + c.minusStep * average / denominator);
    }
  }
};

// Adam, or AdamW: kWeightDecayMeans says where a weight decay other than zero goes.
template <Decay kWeightDecayMeans>
class Adam final : public Optimizer {
 public:
  Adam(std::string_view name, double weightDecay)
      : name_(name),
        hyperparameters_{Hyperparameter{"lr", 1e-3}, Hyperparameter{"beta1", 0.9},
                         Hyperparameter{"beta2", 0.999}, Hyperparameter{"eps", 1e-8},
                         Hyperparameter{"weight_decay", weightDecay}} {}

  std::string_view name() const override { return name_; }
  Publishes publishes() const override { return Publishes::kParameters; }
  std::span<const Hyperparameter> hyperparameters() const override { return hyperparameters_; }

  Status check(std::span<const double> v) const override {
    for (const AdamValue i : {kLr, kBeta1, kBeta2, kEps, kWeightDecay}) {
      if (v[i] < 0) {
        return {Code::kInvalidArgument, fmt::format("{} {} is {}; it must not be negative", name_,
                                                    hyperparameters_[i].name, v[i])};
      }
    }
    for (const AdamValue i : {kBeta1, kBeta2}) {
      if (v[i] >= 1) {
        return {Code::kInvalidArgument, fmt::format("{} {} is {}; it must be below 1", name_,
                                                    hyperparameters_[i].name, v[i])};
      }
    }
    return base::ok();
  }

  void apply(const Update& u) const override {
    kernel::withElement(u.state.dtype(), [&]<typename Element>(Element) {
      if (u.values[kWeightDecay] == 0) {
        applyAs<Element, Decay::kNone>(u);
      } else {
        applyAs<Element, kWeightDecayMeans>(u);
      }
    });
  }

 private:
  template <typename Element, Decay kDecay>
  static void applyAs(const Update& u) {
    using Compute = typename Element::Compute;
    const auto& v = u.values;
    const double decay =
        kDecay == Decay::kOffParameter ? 1 - v[kLr] * v[kWeightDecay] : v[kWeightDecay];
    // The constants are calculated once for a slice, in double, as PyTorch does, and rounded to
    // the type of the loop only at the end.
    const double correction1 = 1 - power(v[kBeta1], u.state.steps());
    const double correction2 = 1 - power(v[kBeta2], u.state.steps());
    const auto weight = static_cast<Compute>(1 - v[kBeta1]);
    const AdamConstants<Compute> constants{
        .weightDecay = static_cast<Compute>(decay),
        .weight = weight,
        .rest = 1 - weight,
        .beta2 = static_cast<Compute>(v[kBeta2]),
        .squareWeight = static_cast<Compute>(1 - v[kBeta2]),
        .correction = static_cast<Compute>(std::sqrt(correction2)),
        .eps = static_cast<Compute>(v[kEps]),
        .minusStep = static_cast<Compute>(-(v[kLr] / correction1))};
    std::byte* averages = u.state.buffer(kAverage).data();
    std::byte* squareAverages = u.state.buffer(kSquareAverage).data();
    kernel::run<AdamStep<Element, kDecay>>(u.level, u.published.data(), u.gradient.data(), averages,
                                           squareAverages, u.state.elements(), constants);
  }

  const std::string_view name_;
  const std::array<Hyperparameter, 5> hyperparameters_;
};

}  // namespace

const Optimizer& adam() {
  static const Adam<Decay::kIntoGradient> kOptimizer("adam", 0);
  return kOptimizer;
}

const Optimizer& adamW() {
  static const Adam<Decay::kOffParameter> kOptimizer("adamw", 1e-2);
  return kOptimizer;
}

}  // namespace sluice::optimizer
