// Members that are lost at any moment: whatever the algorithm, the others go on, no step is lost or
// applied twice, and every result has the bits that one process gets from the log of epochs.
#include <array>
#include <cstdlib>
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sluice/algorithms/testing/elastic_world.h>
#include <sluice/base/testing/short_tests.h>
#include <sluice/base/text.h>

namespace sluice::algorithms {
namespace {

constexpr std::array kAlgorithms{"sluice",        "p3",        "slicing", "kvstore",
                                 "kvstore-parts", "allreduce", "wfbp",    "mgwfbp"};

uint64_t actionsOf(const ElasticJob& job) {
  const auto actions = ElasticWorld(job).run();
  EXPECT_TRUE(actions.isOk()) << actions.status().toString();
  return actions.isOk() ? *actions : 0;
}

class ElasticAlgorithms : public testing::TestWithParam<const char*> {};

TEST_P(ElasticAlgorithms, TrainAsOneProcessDoes) {
  for (uint32_t members = 1; members <= 4; ++members) {
    for (const bool isOnDevice : {false, true})
      actionsOf({.algorithm = GetParam(), .members = members, .isOnDevice = isOnDevice});
  }
}

TEST_P(ElasticAlgorithms, GoOnWithoutAMemberThatIsLostAtAnyMoment) {
  for (uint32_t members = 2; members <= 4; ++members) {
    ElasticJob job{.algorithm = GetParam(), .members = members, .steps = 3, .isOnDevice = true};
    const uint64_t actions = actionsOf(job);
    for (uint64_t moment = 1; moment < actions; moment += base::testsAreShort() ? 31 : 7) {
      job.seed = moment;
      job.losses = {{static_cast<uint32_t>(moment % members), moment}};
      job.isOnDevice = moment % 2 == 0;
      actionsOf(job);
      if (HasFailure()) return;
    }
  }
}

TEST_P(ElasticAlgorithms, GoOnAfterSeveralLosses) {
  for (uint64_t seed = 1; seed <= (base::testsAreShort() ? 15 : 60); ++seed) {
    ElasticJob job{.algorithm = GetParam(),
                   .members = 5,
                   .steps = 3,
                   .seed = seed,
                   .isOnDevice = seed % 2 == 0};
    for (uint32_t n = 0; n < 4; ++n)
      job.losses.push_back({static_cast<uint32_t>((seed + n * 3) % 5), seed * 37 % 900 + n * 40});
    actionsOf(job);
    if (HasFailure()) return;
  }
}

// SLUICE_SCHEDULES plays more of them, SLUICE_FIRST_SCHEDULE others.
uint64_t numberFrom(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return otherwise;
  return static_cast<uint64_t>(base::parseInteger(text).value());
}

ElasticJob randomJob(uint64_t seed) {
  std::mt19937_64 random(seed);
  ElasticJob job{.algorithm = kAlgorithms[random() % kAlgorithms.size()],
                 .members = static_cast<uint32_t>(2 + random() % 4),
                 .steps = 3 + random() % 2,
                 .seed = seed};
  const uint64_t losses = random() % 4 == 0 ? 0 : 1 + random() % 4;
  for (uint64_t n = 0; n < losses; ++n) {
    job.losses.push_back({.member = static_cast<uint32_t>(random() % job.members),
                          .moment = 1 + random() % (150 * job.members),
                          .isCutOff = random() % 3 == 0,
                          .reachesStore = random() % 2 == 0});
  }
  job.isOnDevice = random() % 3 == 0;
  return job;
}

TEST(ElasticSchedules, ARandomOneEndsWithTheBitsOfOneProcess) {
  const uint64_t first = numberFrom("SLUICE_FIRST_SCHEDULE", 1);
  const uint64_t count = numberFrom("SLUICE_SCHEDULES", base::testsAreShort() ? 100 : 500);
  for (uint64_t seed = first; seed < first + count; ++seed) {
    actionsOf(randomJob(seed));
    if (HasFailure())
      FAIL() << "SLUICE_FIRST_SCHEDULE=" << seed << " SLUICE_SCHEDULES=1 repeats it";
  }
}

INSTANTIATE_TEST_SUITE_P(All, ElasticAlgorithms, testing::ValuesIn(kAlgorithms),
                         [](const auto& algorithm) {
                           std::string name(algorithm.param);
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace sluice::algorithms
