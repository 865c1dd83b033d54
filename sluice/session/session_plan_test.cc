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

TEST(SessionPlan, ItsOwnOptionsAreThoseOfItsAlgorithm) {
  auto job = Job::join(Config()).value();
  struct Case {
    std::string algorithm;
    Config::Values settings;
    std::string refusal;
  };
  for (const auto& [algorithm, settings, refusal] :
       std::vector<Case>{{"sluice", {{"servers", "1"}}, "give it to the whole job"},
                         {"p3", {{"placement", "layers"}}, "give it to the whole job"},
                         {"sluice", {{"encrypt", "off"}}, "give it to the whole job"},
                         {"sluice", {{"slice-elemnts", "1"}}, "slice-elements"},
                         {"sluice", {{"slice-elements", "many"}}, "many"},
                         {"sluice", {{"slice-elements", "-1"}}, "slice"},
                         {"nonsense", {}, "there is no algorithm"}}) {
    const auto session = Session::open(*job, plannedOptions(algorithm, settings));
    EXPECT_EQ(session.status().code(), Code::kInvalidArgument) << algorithm;
    EXPECT_THAT(session.status().message(), testing::HasSubstr(refusal));
  }
}

}  // namespace
}  // namespace sluice::session
