#include <sluice/join/rendezvous/find_master.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sluice/base/testing/manual_clock.h>

namespace sluice::rendezvous {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

const std::string kReason = "cannot find the address of 'host': Name or service not known";

// A resolver that knows the name from `appearsAt` on, in time that passes only while the search
// pauses.
struct Resolver {
  Result<std::vector<Address>> find(Duration timeout) {
    return findMaster({.clock = clock,
                       .lookUp = [this](Duration) -> Result<std::vector<Address>> {
                         ++lookUps;
                         if (clock.now() < TimePoint(appearsAt))
                           return Status(Code::kUnavailable, kReason);
                         return std::vector{Address::loopback(7)};
                       },
                       .pause = [this](Duration pause) { clock.advance(pause); }},
                      Rank{3}, timeout);
  }

  Duration appearsAt{};
  base::ManualClock clock{};
  int lookUps = 0;
};

TEST(FindMaster, ANameThatIsKnownIsLookedUpOnce) {
  Resolver resolver{.appearsAt = 0s};
  EXPECT_EQ(resolver.find(60s).value().front(), Address::loopback(7));
  EXPECT_EQ(resolver.lookUps, 1);
}

TEST(FindMaster, ANameThatAppearsLaterIsFoundSoonAndTheWaitSaysWhy) {
  Resolver resolver{.appearsAt = 20s};
  testing::internal::CaptureStderr();
  const auto found = resolver.find(60s);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(found.value().front(), Address::loopback(7));
  EXPECT_LE(resolver.clock.now(), TimePoint(22s));
  EXPECT_LT(resolver.lookUps, 30);  // without hammering the resolver
  EXPECT_THAT(said, HasSubstr("rank 0 is not found yet (" + kReason + "); trying for "));
}

TEST(FindMaster, ANameThatNeverAppearsEndsInTimeWithTheReason) {
  Resolver resolver{.appearsAt = 1h};
  const auto found = resolver.find(10s);
  EXPECT_EQ(found.status().code(), Code::kTimeout);
  EXPECT_EQ(found.status().message(),
            "rank 3 did not find rank 0 in 10s: " + kReason + "; is MASTER_ADDR right?");
  EXPECT_EQ(resolver.clock.now(), TimePoint(10s));
}

const Launch kNowhere{
    .rank = Rank{1}, .worldSize = 2, .masterHost = "no-such-host.invalid", .masterPort = 9};

TEST(FindMaster, SearchesForTheWholeTimeout) {
  const base::RealClock clock;
  const auto begun = clock.now();
  const auto found = findMaster(kNowhere, clock, 300ms);
  EXPECT_GE(clock.now() - begun, 300ms);
  EXPECT_EQ(found.status().code(), Code::kTimeout);
  EXPECT_THAT(found.status().message(), HasSubstr("'no-such-host.invalid'"));
}

TEST(FindMaster, AnInterruptionEndsTheSearchAndIsToldOnce) {
  int asked = 0;
  const Status ctrlC(Code::kCancelled, "Ctrl-C");
  const auto found = findMaster(kNowhere, base::RealClock(), 1h,
                                [&] { return ++asked == 3 ? ctrlC : base::ok(); });
  EXPECT_EQ(found.status(), ctrlC);
  EXPECT_EQ(asked, 3);
}

}  // namespace
}  // namespace sluice::rendezvous
