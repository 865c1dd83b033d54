#include <sluice/join/rendezvous/newcomer.h>

#include <thread>

#include <gtest/gtest.h>

#include <sluice/secret/digest.h>

namespace sluice::rendezvous {
namespace {

using namespace std::chrono_literals;

TEST(Newcomer, ReadsBackWhatItSays) {
  const Newcomer newcomer{.agreementHash = secret::digest("settings"),
                          .process = secret::randomNonce(),
                          .job = secret::randomNonce(),
                          .age = 90s,
                          .waits = 61s,
                          .pid = 4711};
  EXPECT_EQ(Newcomer::decode(newcomer.encode()).value(), newcomer);
}

TEST(Newcomer, RefusesAnotherLengthAndBoundsTimes) {
  const std::string bytes = Newcomer{.agreementHash = secret::digest("")}.encode();
  EXPECT_FALSE(Newcomer::decode(bytes + "x").isOk());
  EXPECT_FALSE(Newcomer::decode(bytes.substr(1)).isOk());
  EXPECT_FALSE(Newcomer::decode("").isOk());
  const Newcomer strange = Newcomer::decode(std::string(bytes.size(), '\xff')).value();
  EXPECT_EQ(strange.age, std::chrono::hours(24 * 365));
  EXPECT_EQ(strange.waits, strange.age);
}

TEST(Newcomer, TheAgeOfThisProcessGrowsWithTime) {
  const auto before = processAge();
  std::this_thread::sleep_for(50ms);
  const auto after = processAge();
  EXPECT_GE(after - before, 30ms);  // the system counts in ticks of 10 ms
  EXPECT_LT(after, std::chrono::hours(24));
}

}  // namespace
}  // namespace sluice::rendezvous
