// SGD with momentum, Nesterov momentum, dampening and weight decay, as torch.optim.SGD.
#include <array>

#include <sluice/data/kernel/element.h>
#include <sluice/data/optimizer/optimizers.h>

namespace sluice::optimizer {
namespace {

enum SgdValue { kLr, kMomentum, kDampening, kWeightDecay, kNesterov };
constexpr std::array kHyperparameters{
    Hyperparameter{"lr", 1e-3}, Hyperparameter{"momentum", 0}, Hyperparameter{"dampening", 0},
    Hyperparameter{"weight_decay", 0}, Hyperparameter{"nesterov", 0}};

enum SgdBuffer { kVelocity };
enum class Momentum { kNone, kPlain, kNesterov };

template <typename Compute>
struct SgdConstants final {
  Compute minusLr;
  Compute weightDecay;
  Compute momentum;
  Compute keep;  // of the velocity before this step
  Compute take;  // of this step's gradient
};

enum class SgdPublishes { kParameters, kDirection };

// Each combination is a loop of its own, chosen once for a slice. A branch inside the loop
// would keep the compiler from using wide registers.
template <typename Element, bool kDecay, Momentum kKind, SgdPublishes kWhat>
struct SgdStep final {
  using Compute = typename Element::Compute;
  using State = kernel::Accumulator<Element>;
  SLUICE_KERNEL static void run(std::byte* __restrict parameters,
                                const std::byte* __restrict gradients,
                                std::byte* __restrict velocities, size_t count,
                                SgdConstants<Compute> c) {
    for (size_t i = 0; i < count; ++i) {
      const Compute parameter = Element::load(parameters, i);
      Compute gradient = State::load(gradients, i);
      if constexpr (kDecay) gradient = gradient + parameter * c.weightDecay;
      if constexpr (kKind != Momentum::kNone) {
        const Compute velocity = State::load(velocities, i) * c.keep + gradient * c.take;
        State::store(velocities, i, velocity);
        gradient = kKind == Momentum::kNesterov ? gradient + velocity * c.momentum : velocity;
      }
      if constexpr (kWhat == SgdPublishes::kDirection) {
        Element::store(parameters, i, gradient);
      } else {
        Element::store(parameters, i, parameter + gradient * c.minusLr);
      }
    }
  }
};

template <SgdPublishes kWhat>
class Sgd final : public Optimizer {
 public:
  std::string_view name() const override { return "sgd"; }
  Publishes publishes() const override { return Publishes::kParameters; }
  std::span<const Hyperparameter> hyperparameters() const override { return kHyperparameters; }

  Status check(std::span<const double> v) const override {
    const auto refuse = [](std::string text) {
      return Status(Code::kInvalidArgument, std::move(text));
    };
    if (v[kLr] < 0) return refuse(fmt::format("sgd lr is {}; it must not be negative", v[kLr]));
    if (v[kMomentum] < 0)
      return refuse(fmt::format("sgd momentum is {}; it must not be negative", v[kMomentum]));
    if (v[kWeightDecay] < 0) {
      return refuse(
          fmt::format("sgd weight_decay is {}; it must not be negative", v[kWeightDecay]));
    }
    if (v[kNesterov] != 0 && v[kNesterov] != 1) {
      return refuse(fmt::format("sgd nesterov is {}; it must be 0 or 1", v[kNesterov]));
    }
    if (v[kNesterov] == 1 && (v[kMomentum] == 0 || v[kDampening] != 0)) {
      return refuse("sgd nesterov needs momentum above 0 and dampening 0");
    }
    return base::ok();
  }

  void apply(const Update& u) const override {
    kernel::withElement(u.state.dtype(), [&]<typename Element>(Element) {
      // Without weight decay its term is left out rather than multiplied by zero: zero times an
      // infinite parameter would be NaN. PyTorch leaves it out as well.
      if (u.values[kWeightDecay] != 0) {
        applyWith<Element, true>(u);
      } else {
        applyWith<Element, false>(u);
      }
    });
  }

 private:
  template <typename Element, bool kDecay>
  static void applyWith(const Update& u) {
    // Without momentum no velocity is kept, which saves memory as large as the parameters.
    // Momentum that is set later begins as in a first step.
    if (u.values[kMomentum] == 0) {
      applyAs<Element, kDecay, Momentum::kNone>(u, nullptr, 0, 0);
      return;
    }
    // The first velocity is the gradient itself, not damped, as in PyTorch.
    const bool first = !u.state.hasBuffer(kVelocity);
    std::byte* velocities = u.state.buffer(kVelocity).data();
    const double keep = first ? 0 : u.values[kMomentum];
    const double take = first ? 1 : 1 - u.values[kDampening];
    if (u.values[kNesterov] == 1) {
      applyAs<Element, kDecay, Momentum::kNesterov>(u, velocities, keep, take);
    } else {
      applyAs<Element, kDecay, Momentum::kPlain>(u, velocities, keep, take);
    }
  }

  template <typename Element, bool kDecay, Momentum kKind>
  static void applyAs(const Update& u, std::byte* velocities, double keep, double take) {
    using Compute = typename Element::Compute;
    const SgdConstants<Compute> constants{static_cast<Compute>(-u.values[kLr]),
                                          static_cast<Compute>(u.values[kWeightDecay]),
                                          static_cast<Compute>(u.values[kMomentum]),
                                          static_cast<Compute>(keep), static_cast<Compute>(take)};
    kernel::run<SgdStep<Element, kDecay, kKind, kWhat>>(
        u.level, u.published.data(), u.gradient.data(), velocities, u.state.elements(), constants);
  }
};

}  // namespace

const Optimizer& sgd() {
  static const Sgd<SgdPublishes::kParameters> kOptimizer;
  return kOptimizer;
}

const Optimizer& sgdDirection() {
  static const Sgd<SgdPublishes::kDirection> kOptimizer;
  return kOptimizer;
}

}  // namespace sluice::optimizer
