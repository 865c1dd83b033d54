#include <sluice/data/shard/sparse_centre.h>

#include <cstring>

#include <gtest/gtest.h>

#include <sluice/data/codec/sparse.h>

namespace sluice::shard {
namespace {

// Two workers, one server besides, one slice of a hundred numbers.
class SparseCentreTest : public testing::Test {
 protected:
  static constexpr size_t kElements = 100;
  static plan::Plan makePlan() {
    plan::PlanSpec spec;
    spec.model.tensors = {{"w", kElements, DType::kF32}};
    spec.roles = plan::parseRoles("dedicated:1", 3).value();
    return plan::Plan::make(spec).value();
  }
  static std::vector<std::byte> message(uint32_t place, float value) {
    std::vector<float> values(kElements);
    values[place] = value;
    return codec::encodeSparse(values, std::vector<uint32_t>{place});
  }
  // A worker's copy, once it has heard the news.
  void hear(std::vector<float>& copy, Rank worker) {
    const auto news = codec::decodeSparse(centre_.newsFor(kSlice, worker), kElements);
    ASSERT_TRUE(news.isOk());
    codec::setSparse(*news, std::as_writable_bytes(std::span(copy)));
  }
  std::vector<float> server() const {
    std::vector<float> values(kElements);
    std::memcpy(values.data(), centre_.parameters(kSlice).data(), kElements * sizeof(float));
    return values;
  }

  static constexpr SliceId kSlice{0};
  const plan::Plan plan_ = makePlan();
  SparseCentre centre_{plan_, Rank{2}};
};

TEST_F(SparseCentreTest, ServesItsOwnSlicesOnly) {
  EXPECT_TRUE(centre_.serves(kSlice));
  EXPECT_FALSE(SparseCentre(plan_, Rank{0}).serves(kSlice));
}

TEST_F(SparseCentreTest, WhoHearsTheNewsHasTheServersParameters) {
  const std::vector<float> first(kElements, 1);
  centre_.setParameters(kSlice, std::as_bytes(std::span(first)));
  std::vector<float> quick = first;
  std::vector<float> slow = first;
  EXPECT_LE(centre_.newsFor(kSlice, Rank{0}).size(), 2U);  // no news
  for (uint32_t step = 0; step < 20; ++step) {
    ASSERT_TRUE(centre_.step(kSlice, message(step * 3 % kElements, 4), 0.25).isOk());
    quick[step * 3 % kElements] = 1000;  // its own step, meanwhile
    hear(quick, Rank{0});
    EXPECT_EQ(quick, server()) << step;
  }
  EXPECT_EQ(server()[3], 0);
  EXPECT_EQ(slow, first);
  hear(slow, Rank{1});
  EXPECT_EQ(slow, server());
}

TEST_F(SparseCentreTest, ParametersFromACheckpointAreNewToAll) {
  const std::vector<float> saved(kElements, 7);
  centre_.replaceParameters(kSlice, std::as_bytes(std::span(saved)));
  for (const Rank worker : {Rank{0}, Rank{1}}) {
    std::vector<float> copy(kElements);
    hear(copy, worker);
    EXPECT_EQ(copy, saved);
  }
}

TEST_F(SparseCentreTest, APartThatIsNoneChangesNothing) {
  EXPECT_EQ(centre_.step(kSlice, std::vector<std::byte>(3, std::byte{9}), 1).code(),
            Code::kDataLoss);
  EXPECT_EQ(server(), std::vector<float>(kElements));
}

}  // namespace
}  // namespace sluice::shard
