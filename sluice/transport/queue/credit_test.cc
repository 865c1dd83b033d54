#include <sluice/transport/queue/credit.h>

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace sluice::queue {
namespace {

TEST(Credit, AdmitsUpToTheWindowOfEachDestination) {
  Credit credit(100);
  EXPECT_TRUE(credit.admitsTo(Rank{0}, 100));
  credit.acquire(Rank{0}, 60);
  EXPECT_TRUE(credit.admitsTo(Rank{0}, 40));
  EXPECT_FALSE(credit.admitsTo(Rank{0}, 41));
  EXPECT_TRUE(credit.admitsTo(Rank{1}, 100));
  credit.release(Rank{0}, 60);
  EXPECT_TRUE(credit.admitsTo(Rank{0}, 100));
}

TEST(Credit, AMessageLargerThanTheWindowGoesAlone) {
  Credit credit(100);
  EXPECT_TRUE(credit.admitsTo(Rank{0}, 5'000));
  credit.acquire(Rank{0}, 5'000);
  EXPECT_FALSE(credit.admitsTo(Rank{0}, 0));
  EXPECT_FALSE(credit.admitsTo(Rank{0}, 1));
  credit.release(Rank{0}, 5'000);
  credit.acquire(Rank{0}, 1);
  EXPECT_FALSE(credit.admitsTo(Rank{0}, 5'000));
}

TEST(Credit, TheTotalBoundsAllDestinationsTogether) {
  Credit credit(100, /*totalWindow=*/150);
  credit.acquire(Rank{0}, 100);
  EXPECT_TRUE(credit.admitsTo(Rank{1}, 60));
  EXPECT_FALSE(credit.admitsInTotal(60));
  EXPECT_TRUE(credit.admitsInTotal(50));
}

TEST(Credit, AnUnlimitedWindowDoesNotOverflow) {
  Credit credit(kUnlimited);
  credit.acquire(Rank{5}, 1);
  EXPECT_TRUE(credit.admitsTo(Rank{5}, kUnlimited - 1));
  EXPECT_FALSE(credit.admitsTo(Rank{5}, kUnlimited));
}

TEST(CreditDeathTest, ReleasingWhatWasNotAcquiredIsABug) {
  Credit credit(100);
  credit.acquire(Rank{0}, 5);
  EXPECT_DEATH(credit.release(Rank{0}, 6), "inFlightTo");
}

RC_GTEST_PROP(Credit, NeverMoreThanTheWindowUnlessOneMessageAlone, ()) {
  const auto window = *rc::gen::inRange<uint64_t>(1, 2'000);
  Credit credit(window);
  std::vector<std::pair<Rank, uint64_t>> inFlight;
  const auto sizes =
      *rc::gen::container<std::vector<uint64_t>>(rc::gen::inRange<uint64_t>(0, 1'000));
  for (const uint64_t bytes : sizes) {
    const Rank to{*rc::gen::inRange<uint32_t>(0, 3)};
    if (credit.admitsTo(to, bytes)) {
      credit.acquire(to, bytes);
      inFlight.emplace_back(to, bytes);
      const auto others = std::ranges::count_if(
          inFlight, [&](const auto& f) { return f.first == to && f.second > 0; });
      RC_ASSERT(credit.inFlightTo(to) <= window || others == 1);
    } else if (!inFlight.empty()) {
      const auto at = *rc::gen::inRange<size_t>(0, inFlight.size());
      credit.release(inFlight[at].first, inFlight[at].second);
      inFlight.erase(inFlight.begin() + static_cast<ptrdiff_t>(at));
    }
  }
  for (const auto& [to, bytes] : inFlight) credit.release(to, bytes);
  RC_ASSERT(credit.inFlight() == 0U);
}

}  // namespace
}  // namespace sluice::queue
