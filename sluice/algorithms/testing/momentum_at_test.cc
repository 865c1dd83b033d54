// asp and ssp with SGD's momentum at the server, at the workers, or left out, against references that
// are written out here.
#include <sluice/algorithms/catalogue/stale_training.h>

#include <gtest/gtest.h>

#include <sluice/algorithms/testing/stepped_world.h>
#include <sluice/data/kernel/element.h>

namespace sluice::algorithms {
namespace {

constexpr double kRate = 0.5;
constexpr double kMomentum = 0.75;
constexpr double kDecay = 0.125;

base::Config withMomentumAt(std::string_view where) {
  base::Config config;
  EXPECT_TRUE(config.set(option::kMomentumAt, where).isOk());
  return config;
}

// Two workers and a server of one tensor, whose elements are all alike. Powers of two keep every
// number exact for a few steps.
class MomentumJob final {
 public:
  MomentumJob(std::string_view algorithm, std::string_view where)
      : world_(algorithm, "dedicated:1", 3, {{"a", 4, DType::kF64}},
               "sgd:lr=0.5,momentum=0.75,weight_decay=0.125", /*updatesWaitForWord=*/false,
               withMomentumAt(where)) {}

  // Returns the worker's parameter after a step of its own.
  double step(uint32_t worker, double gradient) {
    const std::vector<double> gradients(4, gradient);
    world_.ranks()[worker]->gradientReady(TensorId{0}, std::as_bytes(std::span(gradients)));
    runShuffled(world_.ranks(), random_);
    return kernel::loadAt<double>(world_.ranks()[worker]->result(TensorId{0}).data(), 3);
  }

 private:
  SteppedWorld world_;
  std::mt19937 random_{1};
};

TEST(MomentumAt, TheServerHasOneVelocityOfAllWorkers) {
  MomentumJob job("asp", "server");
  double x = 0;
  double velocity = 0;
  for (const auto& [worker, gradient] : {std::pair(0U, 4.0), {1U, -2.0}, {1U, 8.0}, {0U, 1.0}}) {
    velocity = kMomentum * velocity + gradient + kDecay * x;
    x -= kRate * velocity;
    EXPECT_EQ(job.step(worker, gradient), x);
  }
}

TEST(MomentumAt, EachWorkerHasAVelocityOfItsOwn) {
  MomentumJob job("asp", "workers");
  double x = 0;               // the server's
  double copies[2] = {0, 0};  // a worker's gradient and decay are those of its own copy
  double velocities[2] = {0, 0};
  for (const auto& [worker, gradient] : {std::pair(0U, 4.0), {1U, -2.0}, {1U, 8.0}, {0U, 1.0}}) {
    velocities[worker] = kMomentum * velocities[worker] + gradient + kDecay * copies[worker];
    x -= kRate * velocities[worker];
    copies[worker] = x;
    EXPECT_EQ(job.step(worker, gradient), x);
  }
}

TEST(MomentumAt, NoneMakesPlainSteps) {
  MomentumJob job("asp", "none");
  double x = 0;
  for (const auto& [worker, gradient] : {std::pair(0U, 4.0), {1U, -2.0}, {1U, 8.0}, {0U, 1.0}}) {
    x -= kRate * (gradient + kDecay * x);
    EXPECT_EQ(job.step(worker, gradient), x);
  }
}

// Between answers a worker of ssp makes the step that its part will be at the server.
TEST(MomentumAt, WithSspAWorkersOwnStepsHaveItsMomentum) {
  MomentumJob job("ssp:3", "workers");
  double x = 0;
  double velocity = 0;
  for (const double gradient : {4.0, -2.0, 8.0}) {
    velocity = kMomentum * velocity + gradient + kDecay * x;
    x -= kRate * velocity;
    EXPECT_EQ(job.step(0, gradient), x);
  }
}

TEST(MomentumAt, WhatItCannotDoIsRefusedInOneLine) {
  const base::Config config = withMomentumAt("workers");
  plan::PlanSpec spec;
  spec.model.tensors = {{"a", 4, DType::kF32}};
  spec.roles = plan::parseRoles("all", 1).value();
  EXPECT_EQ(
      refusalOf(algorithmNamed("asp"), spec, "adam:lr=1", config),
      "--momentum-at workers is for SGD, and the update is adam; leave the option out, or use "
      "SGD");
  base::Config both = config;
  ASSERT_TRUE(both.set(option::kDgc, "on").isOk());
  EXPECT_EQ(algorithmNamed("asp").choose(both, spec).message(),
            "--dgc keeps the momentum at the workers by itself; leave out --momentum-at");
}

}  // namespace
}  // namespace sluice::algorithms
