// Whole jobs on one simulated clock: whatever happens to members and store, at most one side goes
// on, with the bits of one process, and everybody goes on or ends by name. A seed repeats a job.
#include <sluice/session/elastic/testing/simulated_job.h>

#include <set>

#include <gtest/gtest.h>

#include <sluice/base/log.h>
#include <sluice/base/testing/short_tests.h>

namespace sluice::session {
namespace {

TEST(SimulatedJobs, AllGoOnOrEndByName) {
  ASSERT_TRUE(base::setLogLevels("off").isOk());
  const uint64_t last = base::testsAreShort() ? 30 : 500;
  size_t epochs = 0;
  size_t finished = 0;
  for (uint64_t seed = 1; seed <= last; ++seed) {
    SimulatedJob job(seed);
    const Status status = job.run();
    ASSERT_TRUE(status.isOk()) << status.toString();
    epochs += job.epochs();
    finished += job.finished();
  }
  // The jobs are worth their time.
  EXPECT_GT(epochs, last / 3);
  EXPECT_GE(finished, last);
}

TEST(SimulatedJobs, ASeedRepeatsAJob) {
  ASSERT_TRUE(base::setLogLevels("off").isOk());
  std::set<uint64_t> hashes;
  constexpr uint64_t kSeeds = 20;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SimulatedJob one(seed);
    SimulatedJob other(seed);
    ASSERT_EQ(one.run(), other.run());
    EXPECT_EQ(one.hash(), other.hash()) << seed;
    EXPECT_EQ(one.events(), other.events()) << seed;
    hashes.insert(one.hash());
  }
  EXPECT_EQ(hashes.size(), kSeeds);
}

}  // namespace
}  // namespace sluice::session
