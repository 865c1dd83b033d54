#include <tools/bench/fair_figures.h>

#include <gtest/gtest.h>

#include <sluice/algorithms/catalogue/registry.h>
#include <sluice/algorithms/dgc/dgc_options.h>

namespace sluice::bench {
namespace {

struct FairCase {
  std::string_view written;  // the algorithm
  std::string_view dgc;
  bool sendsEverything;
  Measure measure;
};

TEST(FairFigures, DependOnTheAlgorithmAndItsOptions) {
  for (const FairCase& each : {FairCase{"sluice", "off", true, Measure::kSlowestWorker},
                               FairCase{"kvstore", "off", true, Measure::kSlowestWorker},
                               FairCase{"allreduce", "off", true, Measure::kSlowestWorker},
                               FairCase{"pipe", "off", false, Measure::kSlowestWorker},
                               FairCase{"asp", "off", false, Measure::kThroughput},
                               FairCase{"ssp:3", "off", false, Measure::kThroughput},
                               FairCase{"bsp", "on", false, Measure::kSlowestWorker}}) {
    base::Config config;
    ASSERT_TRUE(config.set(option::kDgc, each.dgc).isOk());
    const auto algorithm = algorithms::readAlgorithm(each.written, config);
    ASSERT_TRUE(algorithm.isOk()) << algorithm.status().toString();
    EXPECT_EQ(sendsEverything(**algorithm, config), each.sendsEverything) << each.written;
    EXPECT_EQ(measureFor(**algorithm, {}), each.measure) << each.written;
  }
}

TEST(FairFigures, UnequalWorkersAreMeasuredByTheirSteps) {
  base::Config config;
  const auto* algorithm = algorithms::readAlgorithm("sluice", config).value();
  EXPECT_EQ(measureFor(*algorithm, {.stragglers = 1, .stragglerFactor = 3}), Measure::kThroughput);
}

}  // namespace
}  // namespace sluice::bench
