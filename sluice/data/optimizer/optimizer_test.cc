#include <sluice/data/optimizer/optimizer.h>

#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include <sluice/data/kernel/reduce.h>
#include <sluice/data/kernel/testing/test_numbers.h>
#include <sluice/data/optimizer/optimizer_spec.h>
#include <sluice/data/optimizer/optimizers.h>

namespace sluice::optimizer {
namespace {

using Bytes = std::vector<std::byte>;
constexpr DType kDTypes[] = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16};
constexpr const char* kSpecs[] = {
    "sgd:lr=0.1",
    "sgd:lr=0.1,weight_decay=0.01",
    "sgd:lr=0.1,momentum=0.9",
    "sgd:lr=0.1,momentum=0.9,dampening=0.5,weight_decay=0.01",
    "sgd:lr=0.1,momentum=0.9,nesterov=1",
    "sgd:lr=0.1,momentum=0.9,weight_decay=0.01,nesterov=1",
    "adam:lr=0.01",
    "adam:lr=0.01,beta1=0.3,beta2=0.9,eps=1e-4,weight_decay=0.1",
    "adam:lr=0.01,beta1=0,beta2=0",
    "adamw:lr=0.01",
    "adamw:lr=0.01,weight_decay=0",
};

OptimizerSpec spec(std::string_view text) {
  return parseOptimizerSpec(text).value();
}

// One parameter, as the formulas of PyTorch's documentation read; `volatile` keeps the compiler
// from being clever.
template <typename T>
class ScalarReference final {
 public:
  explicit ScalarReference(const OptimizerSpec& spec) : adam_(spec.optimizer->name() != "sgd") {
    for (size_t i = 0; i < spec.values.size(); ++i) {
      value_[std::string(spec.optimizer->hyperparameters()[i].name)] = spec.values[i];
    }
    decoupled_ = spec.optimizer->name() == "adamw";
  }

  T step(T parameter, T gradient) {
    ++steps_;
    return adam_ ? adamStep(parameter, gradient) : sgdStep(parameter, gradient);
  }

 private:
  T of(const char* name) const { return static_cast<T>(value_.at(name)); }

  // base^steps_ from base, base^2, base^4 ... in this order: std::pow differs between C libraries
  // and CPUs.
  double power(double base) const {
    double result = 1;
    for (int bit = 1; bit <= steps_; bit *= 2) {
      if ((steps_ & bit) != 0) result = result * base;
      base = base * base;
    }
    return result;
  }

  T sgdStep(T p, T g) {
    if (of("weight_decay") != 0) g = g + T(p * of("weight_decay"));
    if (of("momentum") != 0) {
      const T kept = a_ * of("momentum");
      const T taken = g * static_cast<T>(1 - value_.at("dampening"));
      a_ = steps_ == 1 ? T(g) : T(kept + taken);
      const T ahead = a_ * of("momentum");
      g = of("nesterov") != 0 ? T(g + ahead) : T(a_);
    }
    const T change = g * -of("lr");
    return p + change;
  }

  T adamStep(T p, T g) {
    const double decay = value_.at("weight_decay");
    if (decay != 0 && decoupled_) p = p * static_cast<T>(1 - value_.at("lr") * decay);
    if (decay != 0 && !decoupled_) g = g + T(p * of("weight_decay"));
    const T weight = static_cast<T>(1 - value_.at("beta1"));
    const T distance = g - a_;
    const T part = weight < T(0.5) ? weight * distance : distance * (1 - weight);
    a_ = weight < T(0.5) ? T(a_ + part) : T(g - part);
    const T kept = b_ * of("beta2");
    const T scaled = static_cast<T>(1 - value_.at("beta2")) * g;
    const T taken = scaled * g;
    b_ = kept + taken;
    const double beta1Power = power(value_.at("beta1"));
    const double beta2Power = power(value_.at("beta2"));
    T denominator = std::sqrt(b_) / static_cast<T>(std::sqrt(1 - beta2Power));
    denominator = denominator + of("eps");
    const T numerator = static_cast<T>(-value_.at("lr") / (1 - beta1Power)) * a_;
    const T change = numerator / denominator;
    return p + change;
  }

  bool adam_;
  bool decoupled_ = false;
  std::map<std::string, double> value_;
  int steps_ = 0;
  T a_ = 0;
  T b_ = 0;
};

struct Trained final {
  Bytes parameters;
  OptimizerState state;
};

// `steps` steps on fixed pseudo-random gradients, with everything `offset` bytes off alignment.
Trained train(const OptimizerSpec& s, DType dtype, size_t count, int steps, kernel::Level level,
              size_t offset = 0) {
  kernel::TestNumbers numbers(7);
  const Bytes initial = numbers.elements(dtype, count, /*ordinary=*/true);
  Bytes parameters(offset + initial.size());
  std::ranges::copy(initial, std::span(parameters).subspan(offset).begin());
  OptimizerState state(s.optimizer->name(), dtype, count);
  for (int step = 0; step < steps; ++step) {
    const Bytes fresh = numbers.elements(kernel::accumulatorOf(dtype), count, /*ordinary=*/true);
    Bytes gradient(offset + fresh.size());
    std::ranges::copy(fresh, std::span(gradient).subspan(offset).begin());
    const Status status =
        applyStep(*s.optimizer, state, std::span(parameters).subspan(offset),
                  std::span<const std::byte>(gradient).subspan(offset), s.values, level);
    SLUICE_CHECK(status.isOk(), status.toString());
  }
  const auto result = std::span(parameters).subspan(offset);
  return {{result.begin(), result.end()}, std::move(state)};
}

TEST(Optimizer, IsTheScalarFormulaAtEveryLevelSizeAndAlignment) {
  constexpr int kSteps = 5;
  for (const char* text : kSpecs) {
    const OptimizerSpec s = spec(text);
    for (const DType dtype : kDTypes) {
      for (const size_t count : {0U, 1U, 7U, 8U, 9U, 31U, 1000U}) {
        Bytes expected;
        kernel::withElement(dtype, [&]<typename Element>(Element) {
          using Compute = typename Element::Compute;
          kernel::TestNumbers numbers(7);
          expected = numbers.elements(dtype, count, /*ordinary=*/true);
          std::vector<ScalarReference<Compute>> references(count, ScalarReference<Compute>(s));
          for (int step = 0; step < kSteps; ++step) {
            const Bytes gradient =
                numbers.elements(kernel::accumulatorOf(dtype), count, /*ordinary=*/true);
            for (size_t i = 0; i < count; ++i) {
              const Compute before = Element::load(expected.data(), i);
              Element::store(
                  expected.data(), i,
                  references[i].step(before, kernel::loadAt<Compute>(gradient.data(), i)));
            }
          }
        });
        for (const kernel::Level level : kernel::levels()) {
          for (const size_t offset : {0U, 1U}) {
            ASSERT_EQ(train(s, dtype, count, kSteps, level, offset).parameters, expected)
                << text << ' ' << sluice::name(dtype) << ' ' << count << ' ' << name(level);
          }
        }
      }
    }
  }
}

// See kernel/reduce_test.cc: these bits are a promise to every other machine.
TEST(Optimizer, GivesTheBitsOfEveryOtherMachine) {
  const std::map<std::string_view, std::array<uint64_t, 4>> expected = {
      {"sgd:lr=0.1",
       {0x39fb19bd54a544adU, 0xffe96c2e724dad86U, 0x99008f9f3b2b686dU, 0xf1242ff30249b2d3U}},
      {"sgd:lr=0.1,weight_decay=0.01",
       {0x48811bb7629a15daU, 0x49329662a40e939fU, 0x316fcd0788754aebU, 0xf148530422205106U}},
      {"sgd:lr=0.1,momentum=0.9",
       {0xe3ae293a08087b57U, 0x89e050fb572de17cU, 0xb061b63ee370dab1U, 0x239b6c7b40f8f168U}},
      {"sgd:lr=0.1,momentum=0.9,dampening=0.5,weight_decay=0.01",
       {0x6f4134fd01a9e17bU, 0xd6730ffdfd53b647U, 0x037a038859543a4aU, 0x34642b77ecf85c0fU}},
      {"sgd:lr=0.1,momentum=0.9,nesterov=1",
       {0xc93334688c74ca53U, 0xc50c2a784e842ce1U, 0xf41014245d8502ebU, 0xc7010e68c3b72d1dU}},
      {"sgd:lr=0.1,momentum=0.9,weight_decay=0.01,nesterov=1",
       {0x71a12c1c897dae17U, 0x169538d9af8626b7U, 0x67dfc3241a0ddd46U, 0xfaf7def9bf39ad3aU}},
      {"adam:lr=0.01",
       {0x037487c0521dfe8aU, 0x2e2444f99738ab36U, 0x017b06c0a63b5418U, 0x72940049494b7a00U}},
      {"adam:lr=0.01,beta1=0.3,beta2=0.9,eps=1e-4,weight_decay=0.1",
       {0x1f4f781edd49e75eU, 0x7df5903e65133cfdU, 0xa34a6f2a0cf03510U, 0x68df710fafe4cde0U}},
      {"adam:lr=0.01,beta1=0,beta2=0",
       {0x3cb7f778adbfe493U, 0x37d5cf1d911202cdU, 0x99f72ab960b4d3b1U, 0xfed7f725a436a0a7U}},
      {"adamw:lr=0.01",
       {0x0ee522597838e0abU, 0xb2e62a7d96f6dfa7U, 0x2c54f99c424ee4b0U, 0x3d215df22950101aU}},
      {"adamw:lr=0.01,weight_decay=0",
       {0xf383936dfddeb6deU, 0xa703c080230e636aU, 0xb51dc43e48e7e294U, 0x86d0ab5bd85a804cU}},
  };
  for (const char* text : kSpecs) {
    for (size_t d = 0; d < std::size(kDTypes); ++d) {
      for (const kernel::Level level : kernel::levels()) {
        const Trained result = train(spec(text), kDTypes[d], 1003, 20, level);
        Bytes all = result.parameters;
        const Bytes state = result.state.toBytes();
        all.insert(all.end(), state.begin(), state.end());
        EXPECT_EQ(kernel::fnv1a(all), expected.at(text)[d])
            << text << ' ' << sluice::name(kDTypes[d]) << ' ' << name(level);
      }
    }
  }
}

TEST(Optimizer, ContinuesFromAStoredStateAsIfNothingHadHappened) {
  for (const char* text : kSpecs) {
    const OptimizerSpec s = spec(text);
    Trained half = train(s, DType::kF32, 31, 3, kernel::bestLevel());
    OptimizerState restored = OptimizerState::fromBytes(half.state.toBytes()).value();
    Bytes restoredParameters = half.parameters;
    kernel::TestNumbers numbers(8);
    for (int step = 0; step < 3; ++step) {
      const Bytes gradient = numbers.elements(DType::kF32, 31);
      ASSERT_TRUE(applyStep(*s.optimizer, half.state, half.parameters, gradient, s.values).isOk());
      ASSERT_TRUE(applyStep(*s.optimizer, restored, restoredParameters, gradient, s.values).isOk());
    }
    EXPECT_EQ(restoredParameters, half.parameters) << text;
    EXPECT_EQ(restored, half.state) << text;
  }
}

TEST(Optimizer, MomentumMayBeSwitchedOnLater) {
  // As in PyTorch: the velocity begins with the first gradient that meets a momentum, whatever step
  // that is.
  const OptimizerSpec plain = spec("sgd:lr=1");
  const OptimizerSpec heavy = spec("sgd:lr=1,momentum=0.5");
  OptimizerState state("sgd", DType::kF32, 1);
  Bytes parameter(4);
  Bytes gradient(4);
  kernel::storeAt(gradient.data(), 0, 1.0F);
  const float after[] = {-1, -2, -3.5};
  const OptimizerSpec* specs[] = {&plain, &heavy, &heavy};
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(
        applyStep(*specs[i]->optimizer, state, parameter, gradient, specs[i]->values).isOk());
    EXPECT_EQ(kernel::loadAt<float>(parameter.data(), 0), after[i]);
  }
}

TEST(Optimizer, TheRateTravelsWithTheStep) {
  const OptimizerSpec s = spec("sgd");
  OptimizerState state("sgd", DType::kF32, 1);
  Bytes parameter(4);
  Bytes gradient(4);
  kernel::storeAt(gradient.data(), 0, 1.0F);
  for (const double rate : {0.5, 0.25, 0.0}) {
    auto values = s.values;
    values[0] = rate;
    ASSERT_TRUE(applyStep(*s.optimizer, state, parameter, gradient, values).isOk());
  }
  EXPECT_EQ(kernel::loadAt<float>(parameter.data(), 0), -0.75F);
}

TEST(Optimizer, MeanGradientPublishesTheRoundedMeanAndKeepsNoState) {
  for (const DType dtype : kDTypes) {
    kernel::TestNumbers numbers(9);
    const Bytes gradient = numbers.elements(kernel::accumulatorOf(dtype), 31);
    Bytes expected(31 * sizeOf(dtype));
    kernel::narrow(dtype, expected, gradient);
    OptimizerState state("mean-gradient", dtype, 31);
    Bytes published(expected.size(), std::byte{0xff});
    ASSERT_TRUE(applyStep(meanGradient(), state, published, gradient, {}).isOk());
    EXPECT_EQ(published, expected) << sluice::name(dtype);
    EXPECT_EQ(state.bufferBytes(), 0U);
  }
  EXPECT_EQ(meanGradient().publishes(), Publishes::kMeanGradient);
  EXPECT_EQ(sgd().publishes(), Publishes::kParameters);
}

TEST(Optimizer, RefusesWithoutChangingAnything) {
  const OptimizerSpec s = spec("adam");
  OptimizerState state("adam", DType::kF32, 1);
  OptimizerState foreign("sgd", DType::kF32, 1);
  Bytes parameter(4);
  const Bytes gradient(4, std::byte{1});
  auto bad = s.values;
  bad[0] = -1;
  EXPECT_EQ(applyStep(adam(), state, parameter, gradient, bad).message(),
            "adam lr is -1; it must not be negative");
  EXPECT_EQ(applyStep(adam(), state, parameter, gradient, {}).code(), Code::kInvalidArgument);
  EXPECT_EQ(applyStep(adam(), foreign, parameter, gradient, s.values).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(parameter, Bytes(4));
  EXPECT_EQ(state, OptimizerState("adam", DType::kF32, 1));
}

}  // namespace
}  // namespace sluice::optimizer
