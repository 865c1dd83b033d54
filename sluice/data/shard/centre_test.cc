#include <sluice/data/shard/centre.h>

#include <cstring>

#include <gtest/gtest.h>

namespace sluice::shard {
namespace {

// Two workers, one server besides, one slice of two numbers.
class CentreTest : public testing::Test {
 protected:
  static plan::Plan makePlan() {
    plan::PlanSpec spec;
    spec.model.tensors = {{"w", 2, DType::kF32}};
    spec.roles = plan::parseRoles("dedicated:1", 3).value();
    return plan::Plan::make(spec).value();
  }
  void begin(const std::vector<float>& parameters) {
    centre_.setParameters(kSlice, std::as_bytes(std::span(parameters)));
  }
  void put(Rank worker, const std::vector<float>& values) {
    std::memcpy(centre_.desk(kSlice, worker).data(), values.data(), values.size() * sizeof(float));
  }
  static std::vector<float> read(std::span<const std::byte> bytes) {
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  static constexpr SliceId kSlice{0};
  const plan::Plan plan_ = makePlan();
  const optimizer::OptimizerSpec update_ = optimizer::parseOptimizerSpec("sgd:lr=0.5").value();
  Centre centre_{plan_, Rank{2}, update_};
};

TEST_F(CentreTest, ServesItsOwnSlicesOnly) {
  EXPECT_TRUE(centre_.serves(kSlice));
  EXPECT_FALSE(Centre(plan_, Rank{0}, update_).serves(kSlice));
}

TEST_F(CentreTest, EveryGradientIsAStepOfItsOwn) {
  begin({1, 2});
  put(Rank{0}, {2, 4});
  put(Rank{1}, {20, 40});
  centre_.step(kSlice, Rank{0}, update_.values);
  EXPECT_EQ(read(centre_.parameters(kSlice)), (std::vector<float>{0, 0}));
  EXPECT_EQ(read(centre_.desk(kSlice, Rank{1})),
            (std::vector<float>{20, 40}));  // nobody else's desk
  centre_.step(kSlice, Rank{1}, update_.values);
  EXPECT_EQ(read(centre_.parameters(kSlice)), (std::vector<float>{-10, -20}));
  centre_.copyToDesk(kSlice, Rank{0});
  EXPECT_EQ(read(centre_.desk(kSlice, Rank{0})), (std::vector<float>{-10, -20}));
}

TEST_F(CentreTest, DrawsTogetherBothWays) {
  begin({0, 8});
  put(Rank{1}, {4, 0});
  centre_.drawTogether(kSlice, Rank{1}, 0.25);
  EXPECT_EQ(read(centre_.parameters(kSlice)), (std::vector<float>{1, 6}));
  EXPECT_EQ(read(centre_.desk(kSlice, Rank{1})), (std::vector<float>{3, 2}));
}

}  // namespace
}  // namespace sluice::shard
