#include <sluice/data/optimizer/optimizer_spec.h>

#include <gtest/gtest.h>

#include <sluice/data/optimizer/optimizers.h>

namespace sluice::optimizer {
namespace {

TEST(OptimizerSpec, HasOneTextForEachMeaning) {
  const struct {
    const char* given;
    const char* canonical;
  } cases[] = {
      {"mean-gradient", "mean-gradient"},
      {"sgd", "sgd:lr=0.001,momentum=0,dampening=0,weight_decay=0,nesterov=0"},
      {" sgd : nesterov = true, lr=0.10 ,momentum=.9",
       "sgd:lr=0.1,momentum=0.9,dampening=0,weight_decay=0,nesterov=1"},
      {"sgd:dampening=-0", "sgd:lr=0.001,momentum=0,dampening=0,weight_decay=0,nesterov=0"},
      {"adam:lr=3e-4", "adam:lr=0.0003,beta1=0.9,beta2=0.999,eps=1e-08,weight_decay=0"},
      {"adamw", "adamw:lr=0.001,beta1=0.9,beta2=0.999,eps=1e-08,weight_decay=0.01"},
      {"adam:lr=0.30000000000000004",
       "adam:lr=0.30000000000000004,beta1=0.9,beta2=0.999,eps=1e-08,weight_decay=0"},
  };
  for (const auto& c : cases) {
    const auto spec = parseOptimizerSpec(c.given);
    ASSERT_TRUE(spec.isOk()) << c.given << ": " << spec.status().toString();
    EXPECT_EQ(canonicalText(*spec), c.canonical);
    EXPECT_EQ(parseOptimizerSpec(canonicalText(*spec)).value(), *spec) << c.given;
  }
}

TEST(OptimizerSpec, RefusesInOneLine) {
  const struct {
    const char* given;
    const char* message;
  } cases[] = {
      {"", "there is no optimizer ''; use one of mean-gradient, sgd, adam, adamw"},
      {"lion", "there is no optimizer 'lion'; use one of mean-gradient, sgd, adam, adamw"},
      {"adam:amsgrad=1",
       "adam has no 'amsgrad' on the server; it takes lr, beta1, beta2, eps, weight_decay"},
      {"mean-gradient:lr=1",
       "mean-gradient has no 'lr' on the server; it takes no hyperparameters"},
      {"sgd:", "sgd: '' should read KEY=VALUE"},
      {"sgd:lr", "sgd: 'lr' should read KEY=VALUE"},
      {"sgd:lr=fast", "sgd lr: 'fast' is not a number"},
      {"sgd:lr=1,lr=2", "sgd: 'lr' is given twice"},
      {"sgd:lr=-1", "sgd lr is -1; it must not be negative"},
      {"sgd:lr=nan", "sgd lr is nan; give a finite number"},
      {"sgd:momentum=-1", "sgd momentum is -1; it must not be negative"},
      {"sgd:weight_decay=-1", "sgd weight_decay is -1; it must not be negative"},
      {"sgd:nesterov=1", "sgd nesterov needs momentum above 0 and dampening 0"},
      {"sgd:nesterov=2", "sgd nesterov is 2; it must be 0 or 1"},
      {"adamw:beta2=1", "adamw beta2 is 1; it must be below 1"},
      {"adam:eps=-1", "adam eps is -1; it must not be negative"},
  };
  for (const auto& c : cases) {
    const auto spec = parseOptimizerSpec(c.given);
    ASSERT_FALSE(spec.isOk()) << c.given;
    EXPECT_EQ(spec.status().message(), c.message);
  }
}

TEST(Optimizers, AreFoundByTheirNames) {
  for (const Optimizer* optimizer : optimizers())
    EXPECT_EQ(findOptimizer(optimizer->name()).value(), optimizer);
}

}  // namespace
}  // namespace sluice::optimizer
