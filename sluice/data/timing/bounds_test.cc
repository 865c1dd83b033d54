#include <sluice/data/timing/bounds.h>

#include <algorithm>

#include <gtest/gtest.h>

#include <sluice/data/timing/link_model.h>
#include <sluice/data/timing/testing/random_layers.h>

namespace sluice::timing {
namespace {

constexpr Rate kTenGigabit{10'000'000'000};

TEST(Bounds, P3IsWhatStrictPriorityReachesOnAPreemptiveLink) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 5'000; ++i) {
    const auto [layers, wire] = testing::anyInstance(random, 12);
    EXPECT_NEAR(p3Bound(layers, wire), simulatePreemptive(layers, wire), 1e-9) << "instance " << i;
  }
}

// Jackson's rule: no other order of layers does better on a preemptive link. The test tries every
// order as fixed priorities.
TEST(Bounds, NoOtherPriorityBeatsP3) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 30; ++i) {
    const auto [layers, wire] = testing::anyInstance(random, 5);
    const auto ready = readyTimes(layers);
    const auto tail = tails(layers);
    const double bound = p3Bound(layers, wire);
    std::vector<size_t> order(layers.size());
    for (size_t l = 0; l < order.size(); ++l) order[l] = l;
    do {
      // Time goes in small steps; each step sends the first ready layer of `order`.
      std::vector<double> left;
      double longest = 0;
      for (const Layer& layer : layers) left.push_back(wire.of(layer.bytes));
      for (const double c : left) longest += c;
      const double step = (ready[0] + longest) / 1'000;
      double end = backwardSeconds(layers) + forwardSeconds(layers);
      for (int tick = 0; tick * step < ready[0] + longest + step; ++tick) {
        const double now = tick * step;
        double room = step;
        for (const size_t l : order) {
          if (ready[l] > now || left[l] <= 0) continue;
          const double sent = std::min(room, left[l]);
          left[l] -= sent;
          room -= sent;
          if (left[l] <= 0) end = std::max(end, now + step - room + tail[l]);
          if (room <= 0) break;
        }
      }
      EXPECT_GE(end, bound - 2 * step) << "instance " << i;
    } while (std::ranges::next_permutation(order).found);
  }
}

TEST(Bounds, SlicesBeyondRecallCostAtMostTheirOwnTime) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 2'000; ++i) {
    auto [layers, wire] = testing::anyInstance(random, 10);
    wire.start = 0;
    const SlicedLink link{.sliceBytes = 0.05 + 0.1 * static_cast<double>(i % 7),
                          .beyondRecall = 1 + static_cast<size_t>(i) % 4};
    const double bound = p3Bound(layers, wire);
    const double sliced = simulateSliced(layers, wire, link);
    EXPECT_GE(sliced, bound - 1e-9) << "instance " << i;
    EXPECT_LE(sliced,
              bound + static_cast<double>(link.beyondRecall) * wire.of(link.sliceBytes) + 1e-9)
        << "instance " << i;
  }
}

TEST(Bounds, BytesThatPassAtOnceLowerTheBoundByAtMostTheirWireTime) {
  std::mt19937_64 random(6);
  for (int i = 0; i < 2'000; ++i) {
    const auto [layers, wire] = testing::anyInstance(random, 10);
    const double bound = p3Bound(layers, wire);
    const double headStart = 0.1 * static_cast<double>(i % 5);
    const double lower = p3Bound(layers, wire, headStart);
    EXPECT_LE(lower, bound);
    EXPECT_GE(lower, bound - headStart - 1e-9);
    EXPECT_GE(lower, backwardSeconds(layers) + forwardSeconds(layers));
  }
}

TEST(Bounds, HeadersTakeTheirShareOfALink) {
  EXPECT_EQ(payloadRate(Rate{1'514'000'000}), Rate{1'448'000'000});
}

// The recurrence of the MG-WFBP paper: tau_c[l] = max(tau_c[l+1] + t_c[l+1], tau_b[l] + t_b[l]).
TEST(Bounds, WfbpIsThePapersRecurrence) {
  std::mt19937_64 random(4);
  for (int i = 0; i < 2'000; ++i) {
    const auto [layers, wire] = testing::anyInstance(random, 12);
    double backwardEnd = forwardSeconds(layers);
    double sent = 0;
    for (size_t l = layers.size(); l-- > 0;) {
      backwardEnd += layers[l].backward;
      sent = std::max(sent, backwardEnd) + wire.of(layers[l].bytes);
    }
    EXPECT_NEAR(wfbpBound(layers, wire), sent, 1e-9);
  }
}

// With B = 2F, scheduling alone gains at most a third over FIFO.
TEST(Bounds, PriorityGainsAtMostAThirdOverFifo) {
  std::mt19937_64 random(5);
  double largest = 0;
  for (int i = 0; i < 20'000; ++i) {
    auto [layers, wire] = testing::anyInstance(random, 8);
    wire.start = 0;
    for (Layer& layer : layers) layer.backward = 2 * layer.forward;
    largest = std::max(largest, wfbpBound(layers, wire) / p3Bound(layers, wire));
  }
  EXPECT_LE(largest, 4.0 / 3 + 1e-9);
  EXPECT_GE(largest, 1.2);  // and the third is nearly reached, so the test does test something
}

// The simulator's closed forms for ResNet-50 at 10 Gbit/s, which include a little compute before
// the first and after the last byte.
TEST(Bounds, ShardedWireTimeOfResNet50) {
  const auto profile = *findProfile("resnet50");
  const auto bytes = static_cast<double>(profile.toModel().bytes());
  for (const auto& [ranks, seconds] :
       {std::pair(4U, 0.1227), {16U, 0.1534}, {64U, 0.1611}, {256U, 0.1630}}) {
    const double wire = shardedWireSeconds(ranks, bytes, kTenGigabit);
    EXPECT_LE(wire, seconds + 5e-5) << ranks;
    EXPECT_GE(wire, seconds - 1.5e-4) << ranks;
  }
  EXPECT_EQ(shardedWireSeconds(1, bytes, kTenGigabit), 0);
}

double boundAtRatio(const char* name, double ratio) {
  const auto profile = *findProfile(name);
  const auto wire = shardedWire(4, kTenGigabit);
  const double compute = wire.of(static_cast<double>(profile.toModel().bytes())) / ratio;
  return p3Bound(layersOf(profile, compute), wire) / compute;
}

TEST(Bounds, OfTheProfilesAgainstTheirCompute) {
  EXPECT_NEAR(boundAtRatio("sockeye", 0.25), 1.08, 0.005);  // its first layer is a large embedding
  for (const char* name : {"resnet50", "vgg19", "inceptionv3"}) {
    EXPECT_LT(boundAtRatio(name, 0.25), 1.01) << name;
    EXPECT_GE(boundAtRatio(name, 2), 2) << name;
  }
}

TEST(Bounds, PipeSgdHidesTheShorterOfComputeAndWire) {
  const std::vector<Layer> layers{{1, 2, 10}, {3, 4, 20}};
  EXPECT_DOUBLE_EQ(pipeBound(layers, {.start = 1, .perByte = 0.1}, 0.5), 10.5);
  EXPECT_DOUBLE_EQ(pipeBound(layers, {.start = 1, .perByte = 1}, 0.5), 31);
}

TEST(Bounds, AllReduceCostsOfTableTwo) {
  const Link link{.alpha = 5, .beta = 3, .gamma = 2};
  const auto same = [](const WireCost& cost, double start, double perByte) {
    EXPECT_DOUBLE_EQ(cost.start, start);
    EXPECT_DOUBLE_EQ(cost.perByte, perByte);
  };
  same(binaryTree(8, link), 30, 24);
  same(recursiveDoubling(8, link), 15, 15);
  same(halvingDoubling(8, link), 30, 7);
  same(ring(8, link), 70, 7);
  for (const auto& cost : {binaryTree, recursiveDoubling, halvingDoubling, ring})
    same(cost(1, link), 0, 0);
  // The paper's measured start-up costs on 10GbE grow as its ring says: 2(N-1) alpha.
  const double alpha = 90.52e-6 / 2;
  EXPECT_NEAR(ring(4, {.alpha = alpha}).start, 271.56e-6, 1e-8);
  EXPECT_NEAR(ring(8, {.alpha = alpha}).start, 633.64e-6, 1e-8);
}

}  // namespace
}  // namespace sluice::timing
