#include <tools/planner/decision.h>

#include <gtest/gtest.h>

#include <sluice/algorithms/catalogue/registry.h>
#include <sluice/algorithms/reduction/reduction_options.h>

namespace sluice::planner {
namespace {

Prediction predicted(const char* algorithm, double seconds,
                     std::vector<Candidate::Setting> settings = {},
                     Exactness exactness = Exactness::kSameBits) {
  return {
      .candidate = {algorithms::findAlgorithm(algorithm).value(), std::move(settings), exactness},
      .iterationSeconds = seconds,
      .boundSeconds = 1,
      .bytes = 600e6,
      .messages = 10'000};
}

Prediction ring(double seconds) {
  return predicted("wfbp", seconds, {{&option::kCollective, "ring"}}, Exactness::kOtherOrder);
}

TEST(PlanChoice, TakesTheFastestExactPlan) {
  const auto decision = decide(
      {predicted("sluice", 2), predicted("p3", 1.5), predicted("asp", 1, {}, Exactness::kLossy)},
      {});
  ASSERT_TRUE(decision.isOk());
  EXPECT_EQ(decision->chosen().candidate.name(), "p3");
  EXPECT_EQ(decision->predictions.front().candidate.name(), "asp");
}

TEST(PlanChoice, StaysWithTheDefaultWithinTheErrorOfAPrediction) {
  EXPECT_EQ(decide({predicted("sluice", 1.015), predicted("p3", 1)}, {})->chosen().candidate.name(),
            "sluice");
  EXPECT_EQ(decide({predicted("sluice", 1.5), predicted("p3", 1.01), ring(1)}, {})
                ->chosen()
                .candidate.name(),
            "p3");
  EXPECT_EQ(decide({predicted("sluice", 1.5), predicted("p3", 1.2), ring(1)}, {})
                ->chosen()
                .candidate.name(),
            "wfbp --collective ring");
}

TEST(PlanChoice, FailsWithoutAnExactPlan) {
  EXPECT_FALSE(decide({predicted("asp", 1, {}, Exactness::kLossy)}, {}).isOk());
  EXPECT_FALSE(decide({}, {"sluice"}).isOk());
}

TEST(PlanChoice, SaysWhyNot) {
  Prediction busy = predicted("slicing", 1.3);
  busy.busiestLoop = 0.95;
  Prediction heavy = predicted("kvstore", 1.4);
  heavy.bytes *= 2;
  Prediction large = predicted("p3", 1.2);
  large.messages = 1000;
  const PlanChoice decision =
      decide({predicted("sluice", 1), large, busy, heavy, ring(1.01), predicted("wfbp", 1.5),
              predicted("asp", 0.5, {}, Exactness::kLossy)},
             {"easgd"})
          .value();
  const std::pair<const char*, const char*> cases[] = {
      {"sluice", "sluice is the choice"},
      {"p3",
       "p3 would take 1.2 s, 1.20 times the 1 s of sluice: its messages have 600 kB on "
       "average, so an urgent one waits longer behind others"},
      {"slicing",
       "slicing would take 1.3 s, 1.30 times the 1 s of sluice: its 10000 messages keep "
       "a host's communication thread busy for 95 % of the time"},
      {"kvstore",
       "kvstore would take 1.4 s, 1.40 times the 1 s of sluice: it sends 1200.0 MB in "
       "an iteration, where sluice sends 600.0 MB"},
      {"wfbp",
       "wfbp would take 1.5 s, 1.50 times the 1 s of sluice: it sends gradients in the "
       "order of the backward pass, so the first layers, which the next forward pass needs "
       "first, come last"},
      {"wfbp --collective ring",
       "wfbp --collective ring would take 1.01 s, 1.01 times the 1 s of "
       "sluice: equal within the error of a prediction, and sluice is "
       "the default"},
      {"asp",
       "asp would take 0.5 s, 0.50 times the 1 s of sluice; its class is 'lossy or stale', "
       "which is never chosen without you. Accuracy: 1.0 points less with 8 workers, 7.8 "
       "with 16"},
      {"easgd", "easgd cannot be predicted for so many hosts; try 'sluice simulate'"},
  };
  for (const auto& [name, why] : cases) EXPECT_EQ(whyNot(decision, name).value(), why);
  EXPECT_FALSE(whyNot(decision, "p4").isOk());
}

}  // namespace
}  // namespace sluice::planner
