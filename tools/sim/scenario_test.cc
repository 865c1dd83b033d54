#include <tools/sim/scenario.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <sluice/base/options.h>
#include <sluice/base/testing/short_tests.h>

namespace sluice::sim {
namespace {

Scenario smallScenario(std::vector<std::string> algorithms) {
  Scenario scenario;
  scenario.job.profile = "resnet18";
  scenario.job.warmUp = 1;
  scenario.job.iterations = 3;
  EXPECT_TRUE(scenario.job.config.set(option::kShrink, "64").isOk());
  scenario.algorithms = std::move(algorithms);
  scenario.hosts = {4};
  scenario.seeds = {1, 2};
  scenario.onRun = [](std::string_view) {};
  return scenario;
}

TEST(Scenario, OnlyAlgorithmsThatSendEverythingAreComparedWithTheBound) {
  const auto rows = run(smallScenario({"kvstore", "sluice", "asp", "pipe"}));
  ASSERT_TRUE(rows.isOk()) << rows.status().toString();
  for (const ScenarioRow& row : *rows) {
    const bool isBound = row.algorithm == "kvstore" || row.algorithm == "sluice";
    EXPECT_EQ(row.overBound.has_value(), isBound) << row.algorithm;
    EXPECT_EQ(toJson(row)["over_bound"].is_number(), isBound) << row.algorithm;
    EXPECT_EQ(toJson(row)["over_bound_range"].is_array(), isBound) << row.algorithm;
    if (isBound) {
      EXPECT_GE(row.overBound->least, 1) << row.algorithm;
    }
    EXPECT_TRUE(row.speedupOverKvstore.has_value()) << row.algorithm;
    EXPECT_EQ(row.traceHashes.size(), 2U);
  }
}

// The order of messages decides how far an iteration is from the bound, while the numbers that come
// out are the same in every order. So this finds faults of queue, credit and turns that exact jobs
// do not.
TEST(Scenario, P3AndSluiceStayNearTheBoundAndInvertLittle) {
  if (base::testsAreShort()) GTEST_SKIP() << "other builds compare the figures";
  Scenario scenario = smallScenario({"p3", "sluice"});
  scenario.hosts = {8};
  const auto rows = run(scenario);
  ASSERT_TRUE(rows.isOk()) << rows.status().toString();
  const ScenarioRow& p3 = rows->front();
  const ScenarioRow& ours = rows->back();
  EXPECT_LT(p3.overBound->greatest, 1.06);
  EXPECT_LT(p3.inversionMs.greatest, 1.2);
  EXPECT_LT(ours.overBound->greatest, 1.05);
  EXPECT_LT(ours.inversionMs.greatest, 3.5);
  EXPECT_EQ(p3.droppedShare.greatest, 0);
  EXPECT_EQ(ours.droppedShare.greatest, 0);
}

}  // namespace
}  // namespace sluice::sim
