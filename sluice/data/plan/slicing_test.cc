#include <sluice/data/plan/slicing.h>

#include <algorithm>
#include <set>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <sluice/data/plan/testing/any_plan.h>

namespace sluice::plan {
namespace {

Model modelOf(std::initializer_list<uint64_t> sizes) {
  Model model;
  for (const uint64_t elements : sizes) model.tensors.push_back({"t", elements, DType::kF32});
  return model;
}

// Elements held by each server, in the order of roles.servers.
std::vector<uint64_t> serverLoads(const std::vector<Slice>& slices, const Roles& roles) {
  std::vector<uint64_t> loads(roles.servers.size());
  for (const Slice& slice : slices) loads[roles.serverPosition(slice.server)] += slice.count;
  return loads;
}

uint64_t spreadOf(const std::vector<uint64_t>& loads) {
  const auto [least, most] = std::ranges::minmax(loads);
  return most - least;
}

void coversEveryTensorOnce(const Model& model, const std::vector<Slice>& slices) {
  size_t next = 0;
  for (uint32_t t = 0; t < model.tensors.size(); ++t) {
    uint64_t offset = 0;
    while (offset < model.tensors[t].elements) {
      RC_ASSERT(next < slices.size());
      const Slice& slice = slices[next];
      RC_ASSERT(index(slice.id) == next);
      RC_ASSERT(slice.tensor == TensorId{t});
      RC_ASSERT(slice.priority == t);
      RC_ASSERT(slice.offset == offset);
      RC_ASSERT(slice.count > 0U);
      offset += slice.count;
      ++next;
    }
    RC_ASSERT(offset == model.tensors[t].elements);
  }
  RC_ASSERT(next == slices.size());
}

RC_GTEST_PROP(Slicing, EveryPlacementCoversEveryTensorOnceAndInOrder, ()) {
  const auto placement = *rc::gen::element(Placement::kKvstore, Placement::kRoundRobin,
                                           Placement::kSharded, Placement::kLayers);
  const auto model = *testing::anyModel();
  const auto roles = *testing::anyRoles();
  const auto slicing = *testing::anySlicing(placement);
  const auto slices = *cut(model, roles, slicing);
  coversEveryTensorOnce(model, slices);
  for (const Slice& slice : slices) {
    RC_ASSERT(roles.isServer(slice.server));
    if (placement != Placement::kKvstore) RC_ASSERT(slice.count <= slicing.sliceElements);
  }
  RC_ASSERT(slices == *cut(model, roles, slicing));
}

RC_GTEST_PROP(Slicing, ShardedServersHoldTheSame, ()) {
  const auto model = *testing::anyModel();
  const auto roles = *testing::anyRoles();
  const auto slicing = *testing::anySlicing(Placement::kSharded);
  const auto slices = *cut(model, roles, slicing);
  const uint64_t smallest =
      std::clamp<uint64_t>(slicing.minMessageElements, 1, slicing.sliceElements);
  const auto limit = std::ranges::all_of(model.tensors,
                                         [&](const Tensor& t) {
                                           return t.elements >= smallest * roles.servers.size();
                                         })
                         ? 1
                         : 2 * smallest;
  RC_ASSERT(spreadOf(serverLoads(slices, roles)) <= limit);
}

RC_GTEST_PROP(Slicing, ShardedChunksGoToDifferentServersInMessagesOfTheStatedSize, ()) {
  const auto model = *testing::anyModel();
  const auto roles = *testing::anyRoles();
  const auto slicing = *testing::anySlicing(Placement::kSharded);
  const auto slices = *cut(model, roles, slicing);
  std::set<std::tuple<TensorId, uint32_t, Rank>> seen;
  for (const Slice& slice : slices) {
    RC_ASSERT(seen.emplace(slice.tensor, slice.chunk, slice.server).second);
    const uint64_t smallest = std::min(
        {slicing.minMessageElements, slicing.sliceElements / 2, model[slice.tensor].elements});
    RC_ASSERT(slice.count >= smallest);
  }
}

TEST(Slicing, KvstoreKeepsSmallTensorsWholeAndSplitsLargeOnesEqually) {
  const auto roles = *parseRoles("all", 4);
  const auto slices = *cut(modelOf({999'999, 1'000'000, 1'000'002}), roles,
                           {.placement = Placement::kKvstore, .sliceElements = kKvstoreSplitFrom});
  ASSERT_EQ(slices.size(), 9U);
  EXPECT_EQ(slices[0].count, 999'999U);
  for (int i = 1; i < 5; ++i) EXPECT_EQ(slices[i].count, 250'000U);
  EXPECT_EQ(slices[5].count, 250'001U);
  EXPECT_EQ(slices[8].count, 250'000U);
  EXPECT_EQ(slices[8].server, Rank{3});
}

TEST(Slicing, KvstoreDrawsFromTheSeed) {
  const auto roles = *parseRoles("all", 8);
  const Model model{std::vector<Tensor>(4'000, {"t", 10, DType::kF32})};
  const auto loadsWith = [&](uint64_t seed) {
    return serverLoads(*cut(model, roles, {.placement = Placement::kKvstore, .seed = seed}), roles);
  };
  EXPECT_NE(loadsWith(1), loadsWith(2));
  // 500 tensors per server on average; a draw that favoured one would be far off.
  for (const uint64_t load : loadsWith(1)) EXPECT_NEAR(static_cast<double>(load), 5'000, 1'000);
}

TEST(Slicing, RoundRobinGoesOnOverTheEndsOfTensors) {
  const auto roles = *parseRoles("all", 3);
  const auto slices = *cut(modelOf({7, 120'000, 5}), roles, {.placement = Placement::kRoundRobin});
  std::vector<uint64_t> counts;
  std::vector<uint32_t> servers;
  for (const Slice& slice : slices) {
    counts.push_back(slice.count);
    servers.push_back(index(slice.server));
  }
  EXPECT_EQ(counts, (std::vector<uint64_t>{7, 50'000, 50'000, 20'000, 5}));
  EXPECT_EQ(servers, (std::vector<uint32_t>{0, 1, 2, 0, 1}));
}

using Places = std::vector<std::tuple<uint32_t, uint32_t, uint64_t>>;  // tensor, server, count

Places placesOf(const std::vector<Slice>& slices) {
  Places places;
  for (const Slice& slice : slices)
    places.emplace_back(index(slice.tensor), index(slice.server), slice.count);
  return places;
}

TEST(Slicing, ShardedSlicesAreMessagesAndSmallTensorsGoWholeToTheServerThatHoldsLeast) {
  const auto roles = *parseRoles("2", 4);
  const auto slices =
      *cut(modelOf({100, 64, 20'000, 250'000}), roles, {.placement = Placement::kSharded});
  EXPECT_EQ(placesOf(slices), (Places{{0, 0, 100},
                                      {1, 1, 64},
                                      {2, 0, 10'000},
                                      {2, 1, 10'000},
                                      {3, 0, 41'667},
                                      {3, 1, 41'667},
                                      {3, 0, 41'666},
                                      {3, 1, 41'667},
                                      {3, 0, 41'666},
                                      {3, 1, 41'667}}));
}

TEST(Slicing, LayersStayOnOneServerAndALargeOneOutweighsAllOthers) {
  const auto roles = *parseRoles("all", 3);
  const auto slices =
      *cut(modelOf({100, 64, 120'000, 70, 70}), roles, {.placement = Placement::kLayers});
  EXPECT_EQ(placesOf(slices), (Places{{0, 0, 100},
                                      {1, 1, 64},
                                      {2, 2, 50'000},
                                      {2, 2, 50'000},
                                      {2, 2, 20'000},
                                      {3, 1, 70},
                                      {4, 0, 70}}));
}

TEST(Slicing, WhatCannotBeIsRefusedInOneLine) {
  const auto roles = *parseRoles("all", 2);
  EXPECT_EQ(cut(modelOf({5}), roles, {.sliceElements = 0}).status().message(),
            "a slice cannot have 0 elements; give --slice-elements 1 to 1099511627776");
  for (const auto placement : {Placement::kRoundRobin, Placement::kSharded}) {
    EXPECT_EQ(cut(modelOf({uint64_t{1} << 40}), roles, {.placement = placement, .sliceElements = 1})
                  .status()
                  .message(),
              "the model would be cut into more than 16777216 slices; raise --slice-elements");
  }
  EXPECT_EQ(cut(Model{}, roles, {}).status().message(),
            "the model has no tensors: there is nothing to synchronise");
  EXPECT_EQ(cut(modelOf({5, 0}), roles, {}).status().message(),
            "tensor 1 't' has no elements: leave it out of the model");
  EXPECT_FALSE(cut(modelOf({5}), roles, {.hostsPerRack = 0}).isOk());
}

}  // namespace
}  // namespace sluice::plan
