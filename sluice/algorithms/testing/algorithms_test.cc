#include <sluice/algorithms/catalogue/registry.h>
#include <sluice/algorithms/outbox.h>
#include <sluice/algorithms/testing/stepped_world.h>

#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <sluice/base/options.h>

namespace sluice::algorithms {
namespace {

TEST(Algorithms, HaveNamesAndAliasesOfTheirOwn) {
  std::set<std::string_view> seen;
  for (const Algorithm* algorithm : algorithms()) {
    EXPECT_TRUE(seen.insert(algorithm->name).second) << algorithm->name;
    EXPECT_EQ(findAlgorithm(algorithm->name).value(), algorithm);
    if (algorithm->alias.empty()) continue;
    EXPECT_TRUE(seen.insert(algorithm->alias).second) << algorithm->alias;
    EXPECT_EQ(findAlgorithm(algorithm->alias).value(), algorithm);
  }
  EXPECT_EQ(findAlgorithm("bsp").value(), &algorithmNamed("sluice"));
  EXPECT_EQ(findAlgorithm("arsgd").value(), &algorithmNamed("allreduce"));
}

// Two options of one name would be one for users, and the other one would have no value.
TEST(Algorithms, HaveOptionsOfNamesThatNobodyElseUses) {
  for (const base::Option* option : algorithmOptions())
    EXPECT_EQ(base::findOption(option->name), option) << option->name;
}

TEST(Algorithms, AreReadWithTheirOption) {
  base::Config config;
  EXPECT_EQ(readAlgorithm("ssp:10", config).value(), &algorithmNamed("ssp"));
  EXPECT_EQ(config.integer(*base::findOption("staleness")), 10);
  EXPECT_EQ(readAlgorithm("easgd:8", config).value(), &algorithmNamed("easgd"));
  EXPECT_EQ(config.integer(*base::findOption("tau")), 8);
  EXPECT_EQ(readAlgorithm("gosgd:.01", config).value(), &algorithmNamed("gosgd"));
  EXPECT_EQ(config.number(*base::findOption("gossip-probability")), 0.01);
  EXPECT_EQ(readAlgorithm("adpsgd:torus", config).value(), &algorithmNamed("adpsgd"));
  EXPECT_EQ(config.text(*base::findOption("topology")), "torus");
  EXPECT_EQ(readAlgorithm("pipe:3", config).value(), &algorithmNamed("pipe"));
  EXPECT_EQ(config.integer(*base::findOption("pipe-depth")), 3);
  EXPECT_EQ(readAlgorithm("ssp", config).value(), &algorithmNamed("ssp"));
  EXPECT_EQ(config.integer(*base::findOption("staleness")), 10);  // as it was
}

TEST(Algorithms, NonsenseIsRefusedInOneLine) {
  base::Config config;
  for (const char* text : {"", "nonsense", ":3", "asp:3", "ssp:", "ssp:three", "pipe:", "pipe:two",
                           "bsp:1", "adpsgd:star"}) {
    const Status status = readAlgorithm(text, config).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << text;
    EXPECT_EQ(status.message().find('\n'), std::string::npos) << status.message();
  }
}

TEST(Algorithms, SettingsOutOfRangeAreRefused) {
  struct Case {
    const Algorithm& algorithm;
    const base::Option& option;
    const char* value;
  };
  for (const Case& c :
       {Case{algorithmNamed("ssp"), *base::findOption("staleness"), "-1"},
        Case{algorithmNamed("ssp"), *base::findOption("staleness"), "256"},
        Case{algorithmNamed("easgd"), *base::findOption("tau"), "0"},
        Case{algorithmNamed("easgd"), *base::findOption("alpha"), "1.5"},
        Case{algorithmNamed("easgd"), *base::findOption("alpha"), "-0.1"},
        Case{algorithmNamed("gosgd"), *base::findOption("gossip-probability"), "0"},
        Case{algorithmNamed("gosgd"), *base::findOption("gossip-probability"), "1.1"}}) {
    base::Config config;
    ASSERT_TRUE(config.set(c.option, c.value).isOk());
    plan::PlanSpec spec;
    spec.model.tensors = {{"w", 4, DType::kF32}};
    spec.roles = plan::parseRoles("all", 4).value();
    const Status status = c.algorithm.choose(config, spec);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << c.option.name << " " << c.value;
    EXPECT_NE(status.message().find(c.option.name), std::string::npos) << status.message();
  }
}

TEST(Algorithms, ShrinkDividesSlicesAndCredit) {
  base::Config config;
  ASSERT_TRUE(config.set(option::kShrink, "8").isOk());
  const auto slicingOf = [&](const char* name) {
    plan::PlanSpec spec;
    spec.model.tensors = {{"w", 4, DType::kF32}};
    spec.roles = plan::parseRoles("all", 2).value();
    EXPECT_TRUE(findAlgorithm(name).value()->choose(config, spec).isOk());
    return spec.slicing;
  };
  EXPECT_EQ(slicingOf("sluice").sliceElements, 12'500U / 8);
  EXPECT_EQ(slicingOf("sluice").minMessageElements, 2'048U / 8);
  EXPECT_EQ(slicingOf("p3").sliceElements, 50'000U / 8);
  EXPECT_EQ(slicingOf("kvstore").sliceElements, plan::kKvstoreSplitFrom / 8);
  EXPECT_EQ(byUrgency(config).window, 50'000U);
}

TEST(Algorithms, ManyDestinationsShareTheCredit) {
  base::Config config;
  ASSERT_TRUE(config.set(option::kCredit, "400000").isOk());
  for (const auto& [destinations, window] : std::vector<std::pair<size_t, uint64_t>>{
           {0, 400'000}, {1, 400'000}, {3, 400'000}, {8, 150'000}, {12, 100'000}, {999, 100'000}}) {
    EXPECT_EQ(byUrgencyOverAll(config, destinations).totalWindow, 400'000U);
    EXPECT_EQ(byUrgencyOverAll(config, destinations).window, window) << destinations;
  }
  ASSERT_TRUE(config.set(option::kCongestionControl, "bbr").isOk());
  EXPECT_EQ(byUrgencyOverAll(config, 12).totalWindow, queue::kUnlimited);
  EXPECT_EQ(byUrgencyOverAll(config, 12).window, 400'000U);
}

}  // namespace
}  // namespace sluice::algorithms
