// Sessions with options of their own, in the place of the job's.
#include <sluice/session/session_plan.h>

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sluice/session/inside.h>

namespace sluice::session {
namespace {

SessionOptions plannedOptions(const std::string& algorithm, const Config::Values& settings) {
  SessionOptions options;
  options.model = {{{"w", 100'000, DType::kF32}}};
  options.algorithm = algorithm;
  options.settings = settings;
  return options;
}

TEST(SessionPlan, ASessionHasItsOwnSlices) {
  auto job = Job::join(Config()).value();
  for (const auto& [elements, slices] :
       std::vector<std::pair<std::string, size_t>>{{"50000", 2}, {"10000", 10}}) {
    auto session =
        Session::open(*job, plannedOptions("sluice", {{"slice-elements", elements}})).value();
    EXPECT_EQ(Inside::of(*session).plan().slices().size(), slices);
    EXPECT_TRUE(session->leave().isOk());
  }
}

TEST(SessionPlan, OnlyAlgorithmsThatSumInRankOrderMayTakeTurns) {
  auto job = Job::join(Config()).value();
  struct Case {
    std::string algorithm;
    Config::Values settings;
    std::string refusal;  // empty: it may
  };
  const std::string otherBits = "does not sum in rank order";
  for (const auto& [algorithm, settings, refusal] :
       std::vector<Case>{{"sluice", {}, ""},
                         {"sluice", {{"placement", "layers"}, {"credit", "100000"}}, ""},
                         {"p3", {{"slice-elements", "20000"}}, ""},
                         {"slicing", {}, ""},
                         {"kvstore", {}, ""},
                         {"kvstore-parts", {}, ""},
                         {"wfbp", {}, ""},
                         {"allreduce", {{"collective", "direct"}}, ""},
                         {"mgwfbp", {{"compute-time", "10ms"}}, ""},
                         {"mgp3", {}, ""},
                         {"wfbp", {{"collective", "ring"}}, otherBits},
                         {"allreduce", {{"codec", "fp16"}}, otherBits},
                         {"sluice", {{"dgc", "on"}}, otherBits},
                         {"pipe", {}, otherBits},
                         {"sluice", {{"servers", "1"}}, "give it to the whole job"},
                         {"p3", {{"placement", "layers"}}, "give it to the whole job"},
                         {"sluice", {{"encrypt", "off"}}, "give it to the whole job"},
                         {"sluice", {{"slice-elemnts", "1"}}, "slice-elements"},
                         {"sluice", {{"slice-elements", "many"}}, "many"},
                         {"sluice", {{"slice-elements", "-1"}}, "slice"},
                         {"nonsense", {}, "there is no algorithm"},
                         {"auto", {}, "name an algorithm"}}) {
    const auto hash = hashOfExactPlan(plannedOptions(algorithm, settings), Inside::of(*job));
    EXPECT_EQ(hash.isOk(), refusal.empty()) << algorithm << ": " << hash.status().toString();
    if (!hash.isOk()) {
      EXPECT_EQ(hash.status().code(), Code::kInvalidArgument);
      EXPECT_THAT(hash.status().message(), testing::HasSubstr(refusal));
    }
  }
}

TEST(SessionPlan, TheHashIsThatOfTheSession) {
  auto job = Job::join(Config()).value();
  const auto options = plannedOptions("p3", {{"slice-elements", "20000"}});
  auto session = Session::open(*job, options).value();
  EXPECT_EQ(hashOfExactPlan(options, Inside::of(*job)).value(),
            plan::toHex(Inside::of(*session).plan().hash()));
  EXPECT_NE(hashOfExactPlan(plannedOptions("p3", {}), Inside::of(*job)).value(),
            hashOfExactPlan(options, Inside::of(*job)).value());
  EXPECT_TRUE(session->leave().isOk());
}

}  // namespace
}  // namespace sluice::session
