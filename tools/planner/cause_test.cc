#include <tools/planner/cause.h>

#include <gtest/gtest.h>

#include <sluice/algorithms/catalogue/registry.h>

namespace sluice::planner {
namespace {

Question vgg(double computeSeconds, Rate rate) {
  Question question;
  question.profile = "vgg19";
  question.model = timing::findProfile("vgg19").value();
  question.computeSeconds = computeSeconds;
  question.cluster.network.hosts = 4;
  question.cluster.network.rate = rate;
  return question;
}

std::string causeWith(const Question& question, double seconds, double bound,
                      double freeHosts = 0) {
  return causeOf(question,
                 {.candidate = {algorithms::findAlgorithm("sluice").value()},
                  .iterationSeconds = seconds,
                  .boundSeconds = bound,
                  .messages = 5000},
                 {.freeHosts = freeHosts > 0 ? freeHosts : seconds});
}

constexpr Rate kSlow{300'000'000};
constexpr Rate kFast{25'000'000'000};

TEST(Cause, NamesTheBindingLayerAndLink) {
  Question question = vgg(1, kFast);
  question.cluster.names = {"a", "b", "c", "d"};
  question.cluster.network.topology.hosts[2] = {.out = kSlow, .in = kSlow};
  const std::string cause = causeWith(question, 24, 23.5);
  EXPECT_TRUE(cause.starts_with("fc0_w's 411 MB need ")) << cause;
  EXPECT_NE(
      cause.find(" s on host c's link of 300 Mbit/s, and computing is 1 s: no exact plan with "
                 "a server on every host takes less than 23.5 s"),
      std::string::npos)
      << cause;
}

TEST(Cause, SaysThatComputingHidesTheNetwork) {
  EXPECT_EQ(
      causeWith(vgg(1, kFast), 1.01, 1),
      "computing takes 1 s of each iteration's 1.01 s and hides the network: a faster network "
      "gains nothing, only faster computing does");
}

TEST(Cause, NamesTheHostThatAllWaitFor) {
  Question question = vgg(1, kFast);
  question.cluster.slowerHosts[3] = 3;
  EXPECT_EQ(causeWith(question, 3.05, 3),
            "host 3 computes 3 times longer than the others, 3 s of each iteration's 3.05 s, and "
            "they wait for it: a faster network gains little, so give it less work or replace it");
}

TEST(Cause, NamesTheHostsOwnWork) {
  EXPECT_EQ(causeWith(vgg(0.1, kFast), 1, 0.5, 0.6),
            "400 ms of each iteration's 1 s are the hosts' own work for 5000 messages, with "
            "encryption: faster processors or, on a trusted network, --encrypt off help, more "
            "bandwidth does not");
}

TEST(Cause, NamesLossWhereTheBoundIsFar) {
  Question question = vgg(0.1, kSlow);
  question.cluster.network.loss = 0.01;
  const std::string cause = causeWith(question, 40, 25);
  EXPECT_NE(cause.find("which allows 25 s, but the loss of 1 % slows every connection down: the "
                       "best exact plan takes 40 s"),
            std::string::npos)
      << cause;
}

TEST(Gains, MoreBandwidthHelpsWhereTheNetworkIsTheLimit) {
  Question question = vgg(0.1, {1'000'000'000});
  question.profile = "resnet110";
  question.model = timing::findProfile("resnet110").value();
  question.computeSeconds = 0.005;
  question.cluster.network.hosts = 2;
  const Candidate sluice{algorithms::findAlgorithm("sluice").value()};
  const auto today = predict(question, sluice);
  ASSERT_TRUE(today.isOk() && *today) << today.status().toString();
  EXPECT_GE((*today)->iterationSeconds, (*today)->boundSeconds);
  EXPECT_LE((*today)->iterationSeconds, 1.2 * (*today)->boundSeconds);
  const auto gains = gainsOf(question, **today);
  ASSERT_TRUE(gains.isOk()) << gains.status().toString();
  EXPECT_LT(gains->twiceTheRate, 0.6 * (*today)->iterationSeconds);
  EXPECT_LT(gains->tenTimesTheRate, gains->twiceTheRate);
  EXPECT_LE(gains->halfTheBytes, 1.01 * gains->twiceTheRate);
  EXPECT_DOUBLE_EQ(gains->freeHosts, (*today)->iterationSeconds);  // its hosts are free already
}

}  // namespace
}  // namespace sluice::planner
