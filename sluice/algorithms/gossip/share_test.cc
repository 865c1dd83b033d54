#include <sluice/algorithms/gossip/share.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <list>
#include <random>

#include <gtest/gtest.h>

namespace sluice::gossip {
namespace {

std::span<std::byte> bytesOf(double& x) {
  return std::as_writable_bytes(std::span(&x, 1));
}

TEST(Share, ReceivingIsTheMeanByWeight) {
  double sender = 10;
  double receiver = 1;
  Share from(DType::kF64, sizeof(double), 0.5);
  Share to(DType::kF64, sizeof(double), 0.5);
  ASSERT_TRUE(to.take(from.give(bytesOf(sender))).isOk());
  from.given();
  EXPECT_EQ(from.held(), 0.25);
  EXPECT_EQ(receiver, 1);  // not before it is settled
  to.settle(bytesOf(receiver));
  EXPECT_EQ(to.held(), 0.75);
  EXPECT_DOUBLE_EQ(receiver, (0.5 * 1 + 0.25 * 10) / 0.75);
  EXPECT_EQ(sender, 10);
}

TEST(Share, NonsenseIsRefusedAndChangesNothing) {
  Share share(DType::kF64, sizeof(double), 0.5);
  std::vector<std::byte> message(Share::messageBytes(sizeof(double)));
  for (const double weight :
       {0.0, -0.5, 1.5, std::nan(""), std::numeric_limits<double>::infinity()}) {
    std::memcpy(message.data(), &weight, sizeof(weight));
    EXPECT_EQ(share.take(message).code(), Code::kRefused) << weight;
  }
  message.pop_back();
  EXPECT_EQ(share.take(message).code(), Code::kRefused);
  EXPECT_EQ(share.waiting(), 0);
}

// Workers that give, take, settle and are refused in any order: nothing is lost and nothing is made
// up, neither of the weights nor of the sum of parameters by weight.
TEST(Share, WeightsAndTheWeightedSumAreKeptInEveryInterleaving) {
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    std::mt19937 random(seed);
    const size_t workers = 2 + seed % 8;
    std::vector<Share> shares(
        workers, Share(DType::kF64, sizeof(double), 1.0 / static_cast<double>(workers)));
    std::vector<double> parameters;
    for (size_t w = 0; w < workers; ++w) parameters.push_back(static_cast<double>(random() % 1000));
    struct Underway {
      size_t from;
      size_t to;
      std::vector<std::byte> message;
    };
    std::list<Underway> underway;
    const auto sums = [&] {
      double weight = 0;
      double weighted = 0;
      for (size_t w = 0; w < workers; ++w) {
        weight += shares[w].held();
        weighted += shares[w].held() * parameters[w];
        // Count the waiting messages as settle() would.
        Share copy = shares[w];
        double after = parameters[w];
        copy.settle(bytesOf(after));
        weight += copy.held() - shares[w].held();
        weighted += copy.held() * after - shares[w].held() * parameters[w];
      }
      for (const auto& each : underway) {
        double values[2];
        std::memcpy(values, each.message.data(), sizeof(values));
        weight += values[0];
        weighted += values[0] * values[1];
      }
      return std::pair(weight, weighted);
    };
    const double first = sums().second;
    for (int turn = 0; turn < 60; ++turn) {
      const size_t w = random() % workers;
      if (random() % 3 == 0 && shares[w].mayGive()) {
        const auto message = shares[w].give(bytesOf(parameters[w]));
        underway.push_back(
            {w, (w + 1 + random() % (workers - 1)) % workers, {message.begin(), message.end()}});
      } else if (random() % 2 == 0 && !underway.empty()) {
        auto arriving =
            std::next(underway.begin(), static_cast<ptrdiff_t>(random() % underway.size()));
        if (random() % 4 == 0) {
          shares[arriving->from].refused();
        } else {
          shares[arriving->from].given();
          ASSERT_TRUE(shares[arriving->to].take(arriving->message).isOk());
        }
        underway.erase(arriving);
      } else {
        shares[w].settle(bytesOf(parameters[w]));
      }
      const auto [weight, weighted] = sums();
      ASSERT_NEAR(weight, 1, 1e-6) << "seed " << seed << " turn " << turn;
      ASSERT_NEAR(weighted, first, 1e-6 * std::abs(first) + 1e-9)
          << "seed " << seed << " turn " << turn;
    }
  }
}

}  // namespace
}  // namespace sluice::gossip
