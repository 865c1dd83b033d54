// Hyperparameters that change with every step reach every server in time, whatever the order of
// arrival.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sluice/algorithms/testing/stepped_world.h>

namespace sluice::algorithms {
namespace {

class HyperparametersTest : public testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  void say(SteppedRank& rank, double rate, Step from) {
    rank.loop().post([&rank, rate, from] {
      auto values = optimizer::parseOptimizerSpec("sgd").value().values;
      values[0] = rate;
      EXPECT_TRUE(rank.strategy().setHyperparameters(values, from).isOk());
    });
  }

  SteppedWorld world_{std::get<0>(GetParam()),
                      std::get<1>(GetParam()),
                      4,
                      {{"a", 5, DType::kF32}, {"b", 1, DType::kF32}, {"c", 4, DType::kF32}},
                      "sgd:lr=1"};
  const plan::Plan& plan_ = world_.plan();
  std::vector<std::unique_ptr<SteppedRank>>& ranks_ = world_.ranks();
};

TEST_P(HyperparametersTest, EveryStepHasItsOwn) {
  std::mt19937 random(7);
  float expected = 0;
  for (uint64_t step = 0; step < 12; ++step) {
    // Powers of two: every sum below is exact.
    const auto rate = static_cast<float>(1U << (random() % 5));
    expected -= rate;
    for (const auto& rank : ranks_) {
      if (!rank->isWorker()) continue;
      say(*rank, 1000, Step{step});  // thought better of
      say(*rank, rate, Step{step});
      for (uint32_t t = 3; t-- > 0;) {
        const std::vector<float> ones(plan_.model().tensors[t].elements, 1);
        rank->gradientReady(TensorId{t}, std::as_bytes(std::span(ones)));
      }
      say(*rank, 500, Step{step + 1});  // while this step is under way
    }
    runShuffled(ranks_, random);
    for (const auto& rank : ranks_) {
      if (!rank->isWorker()) continue;
      for (uint32_t t = 0; t < 3; ++t) {
        ASSERT_TRUE(rank->gates().isOpen(TensorId{t}))
            << rank->strategy().describeWait(TensorId{t});
        const std::vector<float> wanted(plan_.model().tensors[t].elements, expected);
        EXPECT_TRUE(std::ranges::equal(rank->result(TensorId{t}), std::as_bytes(std::span(wanted))))
            << step << " " << t;
      }
    }
  }
}

TEST_P(HyperparametersTest, AreTakenFromTheFirstWorkerOnly) {
  const std::vector<double> values = world_.update().values;
  const auto bytes = std::as_bytes(std::span(values));
  const Rank server = plan_.roles().servers.back();
  const bool onlyServes = !plan_.roles().isWorker(server);
  struct Sending {
    uint32_t from;
    size_t length;
    DType dtype;
    bool isGood;
  };
  uint64_t refused = 0;
  for (const Sending& c : {Sending{1, bytes.size(), DType::kF64, false},
                           Sending{0, bytes.size() - 8, DType::kF64, false},
                           Sending{0, bytes.size(), DType::kBytes, false},
                           Sending{0, bytes.size(), DType::kF64, onlyServes}}) {
    if (Rank{c.from} == server) continue;
    const fabric::Message message{.slice = SliceId{1}, .stage = Stage::kUpdate, .dtype = c.dtype};
    ranks_[c.from]->fabric().send(server, fabric::Lane::kBulk, message, {bytes.data(), c.length},
                                  [](const Status&) {});
    std::mt19937 random(1);
    runShuffled(ranks_, random);
    if (!c.isGood) ++refused;
    EXPECT_EQ(ranks_[index(server)]->fabric().counters().drops.of(wire::Drop::kRefused), refused);
  }
}

INSTANTIATE_TEST_SUITE_P(All, HyperparametersTest,
                         testing::Combine(testing::Values("kvstore", "slicing", "p3", "sluice"),
                                          testing::Values("all", "1", "dedicated:1",
                                                          "dedicated:2")));

}  // namespace
}  // namespace sluice::algorithms
