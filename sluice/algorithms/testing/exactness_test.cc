// Bit-exactness: whatever the algorithm, the slice size, the number of ranks and the order of
// arrival, every rank ends with the bits that one process gets by summing in rank order.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sluice/algorithms/server/server_options.h>
#include <sluice/algorithms/testing/stepped_world.h>
#include <sluice/base/options.h>
#include <sluice/base/testing/short_tests.h>
#include <sluice/data/kernel/reduce.h>
#include <sluice/data/kernel/testing/test_numbers.h>

namespace sluice::algorithms {
namespace {

using Bytes = std::vector<std::byte>;

struct Case {
  std::string algorithm;
  uint64_t sliceElements;
  uint32_t world;
  std::string update;
  DType dtype = DType::kF32;
  std::string servers = "all";
  bool overlaps = true;
  const char* placement = "even";
};

std::string describe(const Case& c) {
  return fmt::format("{}, slices of {}, {} ranks, {}, {}, servers {}", c.algorithm, c.sliceElements,
                     c.world, c.update, name(c.dtype), c.servers);
}

// One process, no slices, no network: the sum in rank order and the optimizer's step on the whole
// tensor.
class Reference final {
 public:
  Reference(const Model& model, const optimizer::OptimizerSpec& update,
            std::vector<Bytes> parameters, size_t workers)
      : model_(model), update_(update), results_(std::move(parameters)), workers_(workers) {
    for (const auto& tensor : model.tensors) {
      states_.emplace_back(update.optimizer->name(), tensor.dtype, tensor.elements);
    }
  }
  void step(const std::vector<std::vector<Bytes>>& gradients) {  // by worker, by tensor
    for (size_t t = 0; t < model_.tensors.size(); ++t) {
      const Tensor& tensor = model_.tensors[t];
      Bytes sum(tensor.elements * sizeOf(kernel::accumulatorOf(tensor.dtype)));
      kernel::setScaled(tensor.dtype, sum, gradients[0][t], kernel::meanScale(workers_));
      for (size_t w = 1; w < workers_; ++w) {
        kernel::addScaled(tensor.dtype, sum, gradients[w][t], kernel::meanScale(workers_));
      }
      ASSERT_TRUE(
          applyStep(*update_.optimizer, states_[t], results_[t], sum, update_.values).isOk());
    }
  }
  const Bytes& result(size_t tensor) const { return results_[tensor]; }

 private:
  const Model& model_;
  const optimizer::OptimizerSpec& update_;
  std::vector<Bytes> results_;
  size_t workers_;
  std::vector<optimizer::OptimizerState> states_;
};

// Sizes around every boundary; the large one only where slices are large, or the test would take
// minutes.
Model modelFor(const Case& c) {
  Model model;
  for (const uint64_t elements : {3U, 64U, 1U, 7U, 250U}) {
    model.tensors.push_back({fmt::format("t{}", model.tensors.size()), elements, c.dtype});
  }
  if (c.sliceElements >= 1000) model.tensors.push_back({"wide", 2'003, c.dtype});
  if (c.sliceElements == 50'000) model.tensors.push_back({"large", 100'003, c.dtype});
  if (c.sliceElements > 50'000 && c.world == 2)
    model.tensors.push_back({"largest", 1'000'003, c.dtype});
  return model;
}

void expectExact(const Case& c) {
  SCOPED_TRACE(describe(c));
  const int steps = c.sliceElements < 50'000 ? 3 : 2;
  base::Config config;
  ASSERT_TRUE(config.set(option::kSliceElements, std::to_string(c.sliceElements)).isOk());
  ASSERT_TRUE(config.set(*base::findOption("pipe-warm-up"), "1000")
                  .isOk());  // pipe_test.cc has what comes after
  ASSERT_TRUE(config.set(option::kNoOverlap, c.overlaps ? "off" : "on").isOk());
  ASSERT_TRUE(config.set(option::kPlacement, c.placement).isOk());
  const auto update = optimizer::parseOptimizerSpec(c.update).value();
  plan::PlanSpec spec;
  spec.model = modelFor(c);
  spec.roles = plan::parseRoles(c.servers, c.world).value();
  spec.strategy = c.algorithm;
  const Algorithm& algorithm = *findAlgorithm(c.algorithm).value();
  const Status chosen = algorithm.choose(config, spec);
  if (!chosen.isOk() && spec.roles.workers.size() < c.world) {  // it has no servers
    EXPECT_EQ(chosen.message(),
              fmt::format("{} has no servers: leave out --servers dedicated", c.algorithm));
    return;
  }
  ASSERT_TRUE(chosen.isOk()) << chosen.toString();
  const plan::Plan plan = plan::Plan::make(std::move(spec)).value();

  kernel::TestNumbers numbers(c.world * 1000 + c.sliceElements);
  std::vector<Bytes> parameters;
  for (const auto& tensor : plan.model().tensors) {
    parameters.push_back(numbers.elements(tensor.dtype, tensor.elements, /*ordinary=*/true));
  }
  const size_t workers = plan.roles().workers.size();
  Reference reference(plan.model(), update, parameters, workers);
  fabric::LoopbackHub hub(c.world);
  std::vector<std::unique_ptr<SteppedRank>> ranks;
  for (uint32_t r = 0; r < c.world; ++r) {
    ranks.push_back(
        std::make_unique<SteppedRank>(plan, Rank{r}, update, parameters, config, hub, algorithm));
  }
  std::mt19937 random(c.world);
  const auto tensors = static_cast<uint32_t>(plan.model().tensors.size());

  for (int step = 0; step < steps; ++step) {
    std::vector<std::vector<Bytes>> gradients(workers);
    std::vector<std::pair<size_t, uint32_t>> events;  // (worker, tensor)
    for (size_t w = 0; w < workers; ++w) {
      for (uint32_t t = 0; t < tensors; ++t) {
        const auto& tensor = plan.model().tensors[t];
        gradients[w].push_back(numbers.elements(tensor.dtype, tensor.elements, /*ordinary=*/true));
        events.emplace_back(w, t);
      }
    }
    reference.step(gradients);
    std::ranges::shuffle(events, random);
    for (const auto& [w, t] : events) {
      ranks[index(plan.roles().workers[w])]->gradientReady(TensorId{t}, gradients[w][t]);
      for (const auto& rank : ranks) {
        if (random() % 3 == 0) rank->loop().runOne();
      }
    }
    runShuffled(ranks, random);
    for (const Rank worker : plan.roles().workers) {
      SteppedRank& rank = *ranks[index(worker)];
      for (uint32_t t = 0; t < tensors; ++t) {
        ASSERT_TRUE(rank.gates().isOpen(TensorId{t})) << rank.strategy().describeWait(TensorId{t});
        ASSERT_TRUE(std::ranges::equal(rank.result(TensorId{t}), reference.result(t)))
            << "rank " << index(worker) << " tensor " << t << " step " << step;
      }
    }
  }
}

const std::vector<std::string>& updates() {
  static const std::vector<std::string> kUpdates{
      "mean-gradient", "sgd:lr=0.1", "sgd:lr=0.1,momentum=0.9,nesterov=1,weight_decay=0.01",
      "adam:lr=0.01", "adamw:lr=0.01,weight_decay=0.1"};
  return kUpdates;
}

std::vector<std::string> algorithmNames() {
  std::vector<std::string> names;
  for (const Algorithm* algorithm : algorithms()) {
    if (algorithm->keepsRanksEqual) names.emplace_back(algorithm->name);
  }
  return names;
}

class Exactness : public testing::TestWithParam<std::string> {};

TEST_P(Exactness, SliceSizesAndRanks) {
  for (const uint64_t slice : {1U, 7U, 1'000U, 50'000U, 1'000'000U}) {
    for (const uint32_t world : {1U, 2U, 3U, 4U, 8U}) {
      const bool takesLong = slice == 1 ? world > 3 : slice == 1'000'000 && world == 2;
      if (takesLong && base::testsAreShort()) continue;
      expectExact({GetParam(), slice, world, "sgd:lr=0.1,momentum=0.9"});
    }
  }
}

TEST_P(Exactness, Updates) {
  for (const auto& update : updates()) {
    for (const uint32_t world : {1U, 3U, 4U}) {
      for (const uint64_t slice : {7U, 1'000U}) expectExact({GetParam(), slice, world, update});
    }
  }
}

TEST_P(Exactness, Types) {
  for (const DType dtype : {DType::kF64, DType::kBF16, DType::kF16}) {
    for (const auto& update : updates()) expectExact({GetParam(), 50, 3, update, dtype});
  }
}

TEST_P(Exactness, Servers) {
  for (const char* servers : {"1", "2", "dedicated:1", "dedicated:2"}) {
    for (const auto& update : updates()) {
      expectExact({GetParam(), 50, 4, update, DType::kF32, servers});
    }
  }
}

TEST(ExactWithoutOverlap, ServersAreExactToo) {
  for (const char* algorithm : {"kvstore", "slicing", "p3", "sluice"}) {
    for (const char* servers : {"all", "1", "dedicated:1"}) {
      for (const auto& update : updates()) {
        expectExact({algorithm, 50, 4, update, DType::kF32, servers, /*overlaps=*/false});
      }
    }
  }
}

TEST(LayerWise, ServersAreExactToo) {
  for (const char* servers : {"all", "2", "dedicated:2"}) {
    for (const auto& update : updates()) {
      expectExact({"sluice", 50, 4, update, DType::kF32, servers, /*overlaps=*/true, "layers"});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, Exactness, testing::ValuesIn(algorithmNames()),
                         [](const auto& algorithm) {
                           std::string name = algorithm.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace sluice::algorithms
