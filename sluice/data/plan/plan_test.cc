#include <sluice/data/plan/plan.h>

#include <algorithm>
#include <tuple>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <sluice/base/byte_io.h>
#include <sluice/data/plan/testing/any_plan.h>

namespace sluice::plan {
namespace {

PlanSpec smallSpec() {
  return {.epoch = Epoch{3},
          .model = {{{"conv1.weight", 9408, DType::kF32}, {"fc.weight", 200'000, DType::kBF16}}},
          .roles = *parseRoles("all", 4),
          .slicing = {},
          .strategy = "sluice",
          .settings = {{"optimizer", "sgd"}, {"rate", "0.1"}}};
}

TEST(Plan, FindsSlicesByTensorAndByServer) {
  const auto plan = *Plan::make(smallSpec());
  size_t seen = 0;
  for (uint32_t t = 0; t < 2; ++t) {
    uint64_t elements = 0;
    for (const Slice& slice : plan.slicesOf(TensorId{t})) {
      EXPECT_EQ(slice.tensor, TensorId{t});
      EXPECT_EQ(&plan.slice(slice.id), &slice);
      elements += slice.count;
      ++seen;
    }
    EXPECT_EQ(elements, plan.model()[TensorId{t}].elements);
  }
  EXPECT_EQ(seen, plan.slices().size());
  size_t onServers = 0;
  for (uint32_t r = 0; r < 4; ++r) {
    for (const SliceId id : plan.slicesOn(Rank{r})) EXPECT_EQ(plan.slice(id).server, Rank{r});
    onServers += plan.slicesOn(Rank{r}).size();
  }
  EXPECT_EQ(onServers, plan.slices().size());
  EXPECT_EQ(plan.bytesOf(plan.slicesOf(TensorId{1}).front()), 100'000U);
}

// The hash is what ranks of different builds compare: a change of format or of slicing must be seen
// here. The value was computed apart from this code, as BLAKE2b over the bytes written by hand.
TEST(Plan, TheHashIsTheSameOnEveryMachine) {
  EXPECT_EQ(toHex(Plan::make(smallSpec())->hash()),
            "077f2d3bcd2345118abebcee6581f6be3b604a66bc369d1e5fb88ce608fa62cf");
}

RC_GTEST_PROP(Plan, BytesGiveBackTheSpec, ()) {
  const auto spec = *testing::anySpec();
  const auto back = deserialise(serialise(spec));
  RC_ASSERT(back.isOk());
  RC_ASSERT(*back == spec);
  RC_ASSERT(Plan::make(*back)->hash() == Plan::make(spec)->hash());
  RC_ASSERT(firstDifference(*Plan::make(*back), *Plan::make(spec), Rank{1}).empty());
}

RC_GTEST_PROP(Plan, SpecsHashAlikeOnlyIfTheyAreAlikeAndADifferenceIsNamed, ()) {
  const auto a = *testing::anySpec();
  auto b = a;
  switch (*rc::gen::inRange(0, 7)) {
    case 0: b.epoch = Epoch{index(b.epoch) + 1}; break;
    case 1: b.model.tensors.back().elements += 1; break;
    case 2: b.model.tensors.back().name += "x"; break;
    case 3: b.slicing.sliceElements += 1; break;
    case 4: b.strategy += "x"; break;
    case 5: b.settings["x"] += "x"; break;
    default: b.model.tensors.push_back({"more", 1, DType::kF32}); break;
  }
  RC_ASSERT(Plan::make(a)->hash() != Plan::make(b)->hash());
  const auto text = firstDifference(a, b, Rank{2});
  RC_ASSERT(text.find("on rank 2") != std::string::npos);
}

RC_GTEST_PROP(Plan, CutOffOrLengthenedBytesAreRefused, ()) {
  auto bytes = serialise(*testing::anySpec());
  auto longer = bytes;
  longer.push_back(std::byte{0});
  RC_ASSERT(!deserialise(longer).isOk());
  bytes.resize(*rc::gen::inRange<size_t>(0, bytes.size()));
  RC_ASSERT(!deserialise(bytes).isOk());
}

RC_GTEST_PROP(Plan, ChangedBytesAreRefusedOrAreASpecThatCanBeWrittenBack, ()) {
  auto bytes = serialise(*testing::anySpec());
  const auto changes = *rc::gen::inRange(1, 5);
  for (int i = 0; i < changes; ++i) {
    bytes[*rc::gen::inRange<size_t>(0, bytes.size())] = std::byte{*rc::gen::arbitrary<uint8_t>()};
  }
  if (const auto spec = deserialise(bytes); spec.isOk()) RC_ASSERT(serialise(*spec) == bytes);
}

TEST(Plan, ALyingCountReservesNothing) {
  base::ByteWriter writer;
  writer.number(uint32_t{1});        // version
  writer.number(uint32_t{0});        // epoch
  writer.number(uint32_t{900'000});  // tensors, but none follows
  EXPECT_EQ(deserialise(writer.bytes()).status().toString(),
            "data loss: the plan's bytes are malformed: a length does not fit");
}

TEST(Plan, AnotherVersionIsNamed) {
  auto bytes = serialise(smallSpec());
  bytes[0] = std::byte{9};
  EXPECT_EQ(
      deserialise(bytes).status().message(),
      "the plan has version 9, and this rank reads version 1; run the same sluice on all ranks");
}

TEST(Plan, TheFirstDifferenceIsOneLineThatNamesIt) {
  const auto difference = [](auto change) {
    auto theirs = smallSpec();
    change(theirs);
    return firstDifference(smallSpec(), theirs, Rank{2});
  };
  EXPECT_EQ(difference([](PlanSpec&) {}), "");
  EXPECT_EQ(difference([](PlanSpec& s) { s.epoch = Epoch{4}; }),
            "the membership epoch is 3 here, 4 on rank 2");
  EXPECT_EQ(difference([](PlanSpec& s) { s.model.tensors[0].elements = 9216; }),
            "tensor 0 'conv1.weight' has 9408 elements here, 9216 on rank 2");
  EXPECT_EQ(difference([](PlanSpec& s) { s.model.tensors[1].name = "fc.bias"; }),
            "tensor 1 is 'fc.weight' here, 'fc.bias' on rank 2");
  EXPECT_EQ(difference([](PlanSpec& s) { s.model.tensors[1].dtype = DType::kF16; }),
            "tensor 1 'fc.weight' is bf16 here, f16 on rank 2");
  EXPECT_EQ(difference([](PlanSpec& s) { s.model.tensors.pop_back(); }),
            "the number of tensors is 2 here, 1 on rank 2");
  EXPECT_EQ(difference([](PlanSpec& s) { s.roles = *parseRoles("all", 8); }),
            "the job has 4 ranks here, 8 ranks on rank 2");
  EXPECT_EQ(difference([](PlanSpec& s) { s.roles = *parseRoles("1", 4); }),
            "the roles are 4 ranks: servers 0-3, workers 0-3 here, 4 ranks: servers 0, workers 0-3 "
            "on rank 2");
  EXPECT_EQ(difference([](PlanSpec& s) { s.slicing.placement = Placement::kKvstore; }),
            "the placement is sharded here, kvstore on rank 2");
  EXPECT_EQ(difference([](PlanSpec& s) { s.slicing.sliceElements = 7; }),
            "the slice size is 50000 here, 7 on rank 2");
  EXPECT_EQ(difference([](PlanSpec& s) { s.strategy = "p3"; }),
            "the algorithm is 'sluice' here, 'p3' on rank 2");
  EXPECT_EQ(difference([](PlanSpec& s) { s.settings["rate"] = "0.2"; }),
            "setting rate is '0.1' here, '0.2' on rank 2");
  EXPECT_EQ(difference([](PlanSpec& s) { s.settings.erase("rate"); }),
            "setting rate is '0.1' here, not set on rank 2");
  EXPECT_EQ(difference([](PlanSpec& s) { s.settings["nesterov"] = "on"; }),
            "setting nesterov is not set here, 'on' on rank 2");
}

TEST(Plan, GoesOnWithTheMembersThatAreLeft) {
  const auto first = *Plan::make(smallSpec());
  const std::vector left{Rank{0}, Rank{2}, Rank{3}};
  const Plan next = Plan::continued(first, Epoch{4}, left);
  EXPECT_EQ(next.epoch(), Epoch{4});
  EXPECT_EQ(next.roles().toString(), "3 ranks: servers 0-2, workers 0-2");
  ASSERT_EQ(next.slices().size(), first.slices().size());
  std::vector<size_t> dealt(3);
  for (size_t s = 0; s < first.slices().size(); ++s) {
    const Slice& before = first.slices()[s];
    const Slice& after = next.slices()[s];
    EXPECT_EQ(std::tie(after.id, after.tensor, after.offset, after.count),
              std::tie(before.id, before.tensor, before.offset, before.count));
    if (before.server == Rank{1}) {
      ++dealt[index(after.server)];
    } else {
      EXPECT_EQ(left[index(after.server)], before.server);
    }
  }
  EXPECT_LE(*std::ranges::max_element(dealt), *std::ranges::min_element(dealt) + 1);
}

TEST(Plan, HasServersWhenAllThatServedAreLost) {
  PlanSpec spec = smallSpec();
  spec.roles = *parseRoles("1", 4);
  const Plan next = Plan::continued(*Plan::make(spec), Epoch{4}, std::vector{Rank{1}, Rank{3}});
  EXPECT_EQ(next.roles().toString(), "2 ranks: servers 0-1, workers 0-1");
  EXPECT_FALSE(next.slicesOn(Rank{0}).empty());
  EXPECT_FALSE(next.slicesOn(Rank{1}).empty());
}

}  // namespace
}  // namespace sluice::plan
