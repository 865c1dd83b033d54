#include <tools/planner/candidate.h>

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include <sluice/algorithms/catalogue/registry.h>
#include <sluice/data/timing/profile.h>

namespace sluice::planner {
namespace {

std::vector<Candidate> candidatesOf(const char* profile) {
  return candidates(base::Config(), timing::findProfile(profile)->toModel(),
                    plan::parseRoles("all", 4).value())
      .value();
}

const Candidate* find(const std::vector<Candidate>& all, std::string_view name) {
  const auto found = std::ranges::find(all, name, [](const Candidate& c) { return c.name(); });
  return found == all.end() ? nullptr : &*found;
}

TEST(Candidates, HaveEveryAlgorithmWithItsDefaultsAndEveryPlanOnce) {
  const auto all = candidatesOf("resnet50");
  std::set<std::string> names;
  for (const Candidate& one : all) EXPECT_TRUE(names.insert(one.name()).second) << one.name();
  for (const algorithms::Algorithm* algorithm : algorithms::algorithms())
    EXPECT_TRUE(names.contains(std::string(algorithm->name))) << algorithm->name;
  // The default size of slices is not tried twice, and whole tensors have no slices.
  EXPECT_FALSE(names.contains("sluice --slice-elements 12500"));
  EXPECT_TRUE(names.contains("sluice --slice-elements 50000"));
  EXPECT_FALSE(names.contains("kvstore --slice-elements 50000"));
}

TEST(Candidates, AreInTheClassOfTheirResults) {
  const auto all = candidatesOf("resnet50");
  const std::pair<const char*, Exactness> cases[] = {
      {"sluice", Exactness::kSameBits},
      {"sluice --slice-elements 200000", Exactness::kSameBits},
      {"wfbp", Exactness::kSameBits},
      {"wfbp --collective ring", Exactness::kOtherOrder},
      {"mgwfbp --collective halving-doubling", Exactness::kOtherOrder},
      {"pipe", Exactness::kDelayed},
      {"pipe --codec int8", Exactness::kLossy},
      {"allreduce --codec fp16", Exactness::kLossy},
      {"sluice --dgc on", Exactness::kLossy},
      {"asp", Exactness::kLossy},
      {"adpsgd", Exactness::kLossy},
  };
  for (const auto& [name, exactness] : cases) {
    const Candidate* candidate = find(all, name);
    ASSERT_NE(candidate, nullptr) << name;
    EXPECT_EQ(candidate->exactness, exactness) << name;
    EXPECT_EQ(candidate->accuracy().empty(), isExact(exactness)) << name;
  }
}

}  // namespace
}  // namespace sluice::planner
