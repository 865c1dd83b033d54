#include <tools/planner/prediction.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <sluice/algorithms/catalogue/registry.h>
#include <tools/planner/report.h>

namespace sluice::planner {
namespace {

Question questionOf(const std::string& profile, uint32_t hosts) {
  Question question;
  question.profile = profile;
  question.model = timing::findProfile(profile).value();
  question.computeSeconds = 0.02;
  question.cluster.network.hosts = hosts;
  question.cluster.network.rate = {1'000'000'000};
  return question;
}

// A model that simulates quickly, also with sanitizers.
Question small(uint32_t hosts) {
  // Tests run at the same time, each in a process of its own.
  const auto path = std::filesystem::path(::testing::TempDir()) /
                    fmt::format("sluice_planner_{}.json", ::getpid());
  std::ofstream(path) << R"({"model": "small", "note": "", "tensors": [
    {"name": "a", "parameters": 300000, "forward": 0.2, "backward": 0.3},
    {"name": "b", "parameters": 100000, "forward": 0.2, "backward": 0.3}]})";
  return questionOf(path.string(), hosts);
}

TEST(Prediction, CountsTheTimeOutsideThePasses) {
  Question question = small(2);
  const Candidate sluice{algorithms::findAlgorithm("sluice").value()};
  const double without = predict(question, sluice).value()->iterationSeconds;
  question.otherSeconds = 0.1;
  const double with = predict(question, sluice).value()->iterationSeconds;
  EXPECT_GE(with, 0.12);
  EXPECT_LT(with, without + 0.1);  // messages travel meanwhile
}

TEST(Prediction, CountsAHostThatComputesLonger) {
  Question question = small(2);
  question.cluster.slowerHosts[1] = 5;
  const Candidate sluice{algorithms::findAlgorithm("sluice").value()};
  EXPECT_GE(predict(question, sluice).value()->iterationSeconds, 0.1);
  question.cluster.slowerHosts[2] = 5;  // there is no such host
  EXPECT_FALSE(predict(question, sluice).isOk());
}

TEST(Prediction, UsesRacksAndFormulasWhereHostsAreMany) {
  const Question question = questionOf("resnet110", 1024);
  const auto sluice = predict(question, {algorithms::findAlgorithm("sluice").value()});
  ASSERT_TRUE(sluice.isOk() && *sluice) << sluice.status().toString();
  EXPECT_EQ((*sluice)->means, Means::kRacks);
  const auto merged = predict(question, {algorithms::findAlgorithm("mgwfbp").value()});
  ASSERT_TRUE(merged.isOk() && *merged) << merged.status().toString();
  EXPECT_EQ((*merged)->means, Means::kFormula);
  const auto stale =
      predict(question, {algorithms::findAlgorithm("asp").value(), {}, Exactness::kLossy});
  ASSERT_TRUE(stale.isOk()) << stale.status().toString();
  EXPECT_FALSE(stale->has_value());
}

TEST(Prediction, AllCandidatesOfASmallClusterMakeAReport) {
  Question question = small(2);
  size_t count = 0;
  PlanReport given;
  given.decision = answer(question, [&](std::string_view, size_t all) { count = all; }).value();
  EXPECT_EQ(given.decision.predictions.size(), count);
  EXPECT_TRUE(given.decision.unknown.empty());
  for (const Prediction& one : given.decision.predictions) {
    if (!one.sendsEverything) continue;
    EXPECT_GE(one.iterationSeconds, 0.999 * one.boundSeconds) << one.candidate.name();
  }
  given.gains = gainsOf(question, given.decision.chosen()).value();
  given.cause = causeOf(question, given.decision.chosen(), given.gains);
  const auto json = toJson(question, given);
  EXPECT_EQ(json["best"].size(), 4U);
  EXPECT_EQ(json["candidates"].size(), count);
  EXPECT_EQ(json["choice"]["name"], given.decision.chosen().candidate.name());
  EXPECT_NE(summaryOf(question, given).find("choice: "), std::string::npos);
}

TEST(Report, AConfigurationHasTheTimesThatMergingGoesBy) {
  const Question question = small(2);
  const auto plain =
      configurationOf(question, {.candidate = {algorithms::findAlgorithm("sluice").value()}});
  EXPECT_EQ(plain.dump(), R"({"algorithm":"sluice"})");
  const auto merged =
      configurationOf(question, {.candidate = {algorithms::findAlgorithm("mgwfbp").value()}});
  EXPECT_EQ(merged["layer-times"], question.profile);
  EXPECT_EQ(merged["compute-time"], "20000us");
  EXPECT_TRUE(merged.contains("reduction-rate"));
}

}  // namespace
}  // namespace sluice::planner
