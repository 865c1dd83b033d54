#include <sluice/session/coming_gradients.h>

#include <gtest/gtest.h>

namespace sluice::session {
namespace {

class ComingGradientsTest : public testing::Test {
 protected:
  static plan::Plan makePlan() {
    plan::PlanSpec spec;
    spec.model.tensors = {{"w", 6, DType::kF32}, {"b", 2, DType::kF32}};
    spec.roles = plan::parseRoles("all", 1).value();
    spec.slicing = {.placement = plan::Placement::kRoundRobin, .sliceElements = 2};
    spec.strategy = "p3";
    return plan::Plan::make(std::move(spec)).value();
  }

  const plan::Plan plan_ = makePlan();
  ComingGradients coming_{plan_};
};

TEST_F(ComingGradientsTest, CountsTheSlicesInAnyOrder) {
  for (const uint64_t step : {4U, 5U}) {
    coming_.announce(TensorId{0}, Step{step}, {});
    const auto first = coming_.come(TensorId{0}, 2);
    EXPECT_EQ(first.slice, plan_.slicesOf(TensorId{0})[2].id);
    EXPECT_EQ(first.step, Step{step});
    EXPECT_TRUE(first.isFirst() && !first.isLast());
    EXPECT_EQ(coming_.describe(TensorId{0}), "2 of 3 slices not yet copied from the device");
    const auto second = coming_.come(TensorId{0}, 0);
    EXPECT_TRUE(!second.isFirst() && !second.isLast());
    EXPECT_TRUE(coming_.come(TensorId{0}, 1).isLast());
    EXPECT_FALSE(coming_.isComing(TensorId{0}));
    EXPECT_EQ(coming_.describe(TensorId{0}), "");
  }
}

TEST_F(ComingGradientsTest, AWordWaitsForAllGradients) {
  int said = 0;
  const auto word = [&] { ++said; };
  coming_.whenComplete(word);
  EXPECT_EQ(said, 1);  // nothing comes
  coming_.announce(TensorId{0}, Step{0}, {});
  coming_.announce(TensorId{1}, Step{0}, {});
  coming_.whenComplete(word);
  (void)coming_.come(TensorId{1}, 0);
  for (const size_t place : {0U, 1U, 2U}) {
    EXPECT_TRUE(coming_.takeWaiting().empty());
    (void)coming_.come(TensorId{0}, place);
  }
  EXPECT_EQ(said, 1);
  for (const auto& each : coming_.takeWaiting()) each();
  EXPECT_EQ(said, 2);
  EXPECT_TRUE(coming_.takeWaiting().empty());
}

TEST_F(ComingGradientsTest, NothingIsLeftAfterAnError) {
  coming_.announce(TensorId{0}, Step{0}, {});
  coming_.whenComplete([] { FAIL(); });
  coming_.clear();
  EXPECT_FALSE(coming_.isComing(TensorId{0}));
  EXPECT_TRUE(coming_.takeWaiting().empty());
}

}  // namespace
}  // namespace sluice::session
