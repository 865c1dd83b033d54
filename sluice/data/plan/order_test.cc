#include <sluice/data/plan/order.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <sluice/base/cpu_time.h>
#include <sluice/data/plan/testing/any_plan.h>

namespace sluice::plan {
namespace {

Plan planOf(Placement placement, std::string_view servers, uint32_t world, uint64_t elements) {
  return *Plan::make(
      {.model = {{{"first", elements, DType::kF32}, {"second", elements, DType::kF32}}},
       .roles = *parseRoles(servers, world),
       .slicing = {.placement = placement},
       .strategy = "test"});
}

// All slices in the order in which `worker` pushes them when all are ready.
std::vector<SliceId> pushOrder(const Plan& plan, Rank worker) {
  std::vector<std::tuple<uint32_t, uint64_t, SliceId>> keys;
  keys.reserve(plan.slices().size());
  for (const Slice& slice : plan.slices()) {
    keys.emplace_back(slice.priority, pushTurn(plan, slice, worker), slice.id);
  }
  std::ranges::sort(keys);
  std::vector<SliceId> order;
  order.reserve(keys.size());
  std::ranges::transform(keys, std::back_inserter(order),
                         [](const auto& key) { return std::get<SliceId>(key); });
  return order;
}

RC_GTEST_PROP(Order, EverySenderVisitsEveryDestinationOnceBeginningWithItsOwnPosition, ()) {
  const auto count = *rc::gen::inRange<uint32_t>(1, 60);
  const auto from = *rc::gen::inRange<uint32_t>(0, 100);
  const auto hosts = *rc::gen::inRange<uint32_t>(1, 70);
  std::set<uint32_t> visits;
  for (uint32_t to = 0; to < count; ++to) visits.insert(visit(from, to, count, hosts));
  RC_ASSERT(visits.size() == count);
  RC_ASSERT(*visits.rbegin() == count - 1);
  RC_ASSERT(visit(from, from % count, count, hosts) == 0U);
}

RC_GTEST_PROP(Order, AtAnyMomentEveryDestinationHearsFromOneSender, ()) {
  const auto count = *rc::gen::inRange<uint32_t>(1, 60);
  const auto hosts = *rc::gen::inRange<uint32_t>(1, 9);
  for (uint32_t to = 0; to < count; ++to) {
    std::set<uint32_t> moments;
    for (uint32_t from = 0; from < count; ++from) moments.insert(visit(from, to, count, hosts));
    RC_ASSERT(moments.size() == count);
  }
}

TEST(Order, StridesOverRacks) {
  std::vector<uint32_t> order(8);
  for (uint32_t to = 0; to < 8; ++to) order[visit(1, to, 8, 4)] = to;
  EXPECT_EQ(order, (std::vector<uint32_t>{1, 5, 2, 6, 3, 7, 4, 0}));
}

RC_GTEST_PROP(Order, PushOrderFollowsTheForwardPassAndIsAPermutation, ()) {
  const auto plan = *Plan::make(*testing::anySpec());
  for (const Rank worker : plan.roles().workers) {
    auto order = pushOrder(plan, worker);
    RC_ASSERT(
        std::ranges::is_sorted(order, {}, [&](SliceId id) { return plan.slice(id).priority; }));
    std::ranges::sort(order);
    RC_ASSERT(order.size() == plan.slices().size());
    RC_ASSERT(std::ranges::adjacent_find(order) == order.end());
  }
}

TEST(Order, ShardedWorkersBeginAtDifferentServersAndFinishAChunkBeforeTheNext) {
  const auto plan = planOf(Placement::kSharded, "all", 4, 400'000);
  for (uint32_t w = 0; w < 4; ++w) {
    const auto order = pushOrder(plan, Rank{w});
    for (uint32_t i = 0; i < order.size(); ++i) {
      EXPECT_EQ(plan.slice(order[i]).server, Rank{(w + i) % 4});
      EXPECT_EQ(plan.slice(order[i]).chunk, i / 4 % 2);
    }
  }
}

TEST(Order, ThePublishedPlacementsSendInTheSameOrderEverywhere) {
  for (const auto placement : {Placement::kKvstore, Placement::kRoundRobin}) {
    const auto plan = planOf(placement, "2", 4, 1'200'000);
    EXPECT_EQ(pushOrder(plan, Rank{0}), pushOrder(plan, Rank{3}));
  }
}

TEST(Order, ServersPublishToWorkersRotated) {
  const auto plan = planOf(Placement::kSharded, "dedicated:2", 6, 100'000);
  for (const Slice& slice : plan.slicesOf(TensorId{0})) {
    const uint32_t server = plan.roles().serverPosition(slice.server);
    for (uint32_t w = 0; w < 4; ++w) {
      EXPECT_EQ(publishTurn(plan, slice, Rank{w}), slice.chunk * 4 + (w + 4 - server) % 4);
    }
  }
}

// Plans 4096 servers and 40 million elements: an algorithm that is quadratic in servers or slices
// would take minutes. The limit is in CPU time, for the slowest of builds: without optimisation,
// under a sanitizer.
TEST(Order, PlansOfThousandsOfServersTakeNoTime) {
  PlanSpec spec{.roles = *parseRoles("all", 4096), .strategy = "test"};
  for (int i = 0; i < 20; ++i) spec.model.tensors.push_back({"bias", 512, DType::kF32});
  for (int i = 0; i < 20; ++i) spec.model.tensors.push_back({"weight", 2'000'000, DType::kF32});
  const Duration start = base::threadCpuTime();
  for (const auto placement : {Placement::kKvstore, Placement::kRoundRobin, Placement::kSharded}) {
    spec.slicing.placement = placement;
    const auto plan = *Plan::make(spec);
    EXPECT_EQ(pushOrder(plan, Rank{4095}).size(), plan.slices().size());
  }
  EXPECT_LT(base::threadCpuTime() - start, std::chrono::seconds(20));
}

}  // namespace
}  // namespace sluice::plan
