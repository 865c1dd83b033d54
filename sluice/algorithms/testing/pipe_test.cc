// Pipe-SGD against one process that applies gradients late: through warm-up, drain and a checkpoint
// in the middle, bit for bit.
#include <deque>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sluice/algorithms/reduction/reduction_options.h>
#include <sluice/algorithms/testing/stepped_world.h>
#include <sluice/base/options.h>
#include <sluice/data/kernel/reduce.h>
#include <sluice/data/kernel/testing/test_numbers.h>

namespace sluice::algorithms {
namespace {

using Bytes = std::vector<std::byte>;
using Gradients = std::vector<std::vector<Bytes>>;  // by rank, by tensor

struct PipeCase {
  std::string update = "sgd:lr=0.1";
  size_t depth = 2;
  uint64_t warmUp = 0;
  uint32_t world = 3;
  DType dtype = DType::kF32;
  std::string codec = "none";
  std::string algorithm = "pipe";
};

std::string describe(const PipeCase& c) {
  return fmt::format("{}, K = {}, {} steps of warm-up, {} ranks, {}, codec {}", c.update, c.depth,
                     c.warmUp, c.world, name(c.dtype), c.codec);
}

Model modelFor(DType dtype) {
  return {{{"conv", 300, dtype}, {"bias", 3, dtype}, {"fc", 1'100, dtype}}};
}

std::vector<Bytes> someTensors(kernel::TestNumbers& numbers, DType dtype) {
  std::vector<Bytes> tensors;
  for (const auto& tensor : modelFor(dtype).tensors)
    tensors.push_back(numbers.elements(dtype, tensor.elements, /*ordinary=*/true));
  return tensors;
}

Gradients someGradients(kernel::TestNumbers& numbers, const PipeCase& c) {
  Gradients gradients;
  for (uint32_t r = 0; r < c.world; ++r) gradients.push_back(someTensors(numbers, c.dtype));
  return gradients;
}

// w[t] = w[t-1] - lr * g[t-K], in the simplest way.
class LateProcess final {
 public:
  LateProcess(const PipeCase& c, std::vector<Bytes> parameters)
      : case_(c),
        update_(optimizer::parseOptimizerSpec(c.update).value()),
        results_(std::move(parameters)) {
    for (const auto& tensor : modelFor(c.dtype).tensors)
      states_.emplace_back(update_.optimizer->name(), tensor.dtype, tensor.elements);
  }

  // True iff this step has a result.
  bool step(const Gradients& gradients) {
    auto& mean = waiting_.emplace_back();
    for (size_t t = 0; t < results_.size(); ++t) {
      Bytes& sum = mean.emplace_back(gradients[0][t].size() / sizeOf(case_.dtype) *
                                     sizeOf(kernel::accumulatorOf(case_.dtype)));
      const double scale = kernel::meanScale(gradients.size());
      kernel::setScaled(case_.dtype, sum, gradients[0][t], scale);
      for (size_t r = 1; r < gradients.size(); ++r)
        kernel::addScaled(case_.dtype, sum, gradients[r][t], scale);
    }
    const bool isWarm = steps_++ >= case_.warmUp;
    return waiting_.size() > (isWarm ? case_.depth - 1 : 0) && apply();
  }
  bool apply() {
    for (size_t t = 0; t < results_.size(); ++t) {
      EXPECT_TRUE(applyStep(*update_.optimizer, states_[t], results_[t], waiting_.front()[t],
                            update_.values)
                      .isOk());
    }
    waiting_.pop_front();
    return true;
  }
  size_t waiting() const { return waiting_.size(); }
  const std::vector<Bytes>& results() const { return results_; }

 private:
  const PipeCase case_;
  const optimizer::OptimizerSpec update_;
  std::vector<Bytes> results_;
  std::vector<optimizer::OptimizerState> states_;
  std::deque<std::vector<Bytes>> waiting_;
  uint64_t steps_ = 0;
};

base::Config configFor(const PipeCase& c) {
  base::Config config;
  const std::pair<const base::Option*, std::string> options[] = {
      {&*base::findOption("pipe-depth"), std::to_string(c.depth)},
      {&*base::findOption("pipe-warm-up"), std::to_string(c.warmUp)},
      {&option::kCodec, c.codec}};
  for (const auto& [option, value] : options) EXPECT_TRUE(config.set(*option, value).isOk());
  return config;
}

class PipeWorld final {
 public:
  PipeWorld(const PipeCase& c, const std::vector<Bytes>& parameters)
      : world_(c.algorithm, "all", c.world, modelFor(c.dtype).tensors, c.update,
               /*updatesWaitForWord=*/false, configFor(c), parameters) {}

  void handOver(uint32_t rank, const std::vector<Bytes>& gradients) {
    for (auto t = static_cast<uint32_t>(gradients.size()); t-- > 0;)
      ranks_[rank]->gradientReady(TensorId{t}, gradients[t]);
  }
  void step(const Gradients& gradients) {
    for (uint32_t r = 0; r < gradients.size(); ++r) handOver(r, gradients[r]);
    run();
  }
  void handOutDelayed() {
    for (const auto& rank : ranks_) {
      for (uint32_t t = 0; t < plan_.model().tensors.size(); ++t) {
        const Step step = rank->gates().close(TensorId{t}).value();
        rank->loop().post([&rank, t, step] {
          EXPECT_TRUE(rank->strategy().delayedResults().handOut(TensorId{t}, step).isOk());
        });
      }
    }
    run();
  }
  std::vector<Bytes> states() {
    std::vector<Bytes> states;
    for (const auto& rank : ranks_) {
      rank->loop().post([&] {
        const auto state = rank->strategy().checkpoint().take();
        EXPECT_TRUE(state.isOk()) << state.status().toString();
        states.push_back(*state);
      });
      run();
    }
    return states;
  }
  Status restore(uint32_t rank, const Bytes& state) {
    Status restored;
    ranks_[rank]->loop().post(
        [&] { restored = ranks_[rank]->strategy().checkpoint().restore(state); });
    run();
    return restored;
  }
  size_t delayed(uint32_t rank) { return ranks_[rank]->strategy().delayedResults().count(); }

  // Every rank has these results; an empty list stands for empty gates.
  void expect(const std::vector<Bytes>& results, bool hasResult, std::string_view when) {
    for (size_t r = 0; r < ranks_.size(); ++r) {
      for (uint32_t t = 0; t < results.size(); ++t) {
        const TensorId tensor{t};
        ASSERT_TRUE(ranks_[r]->gates().isOpen(tensor))
            << ranks_[r]->strategy().describeWait(tensor);
        ASSERT_EQ(ranks_[r]->gates().isEmpty(tensor), !hasResult) << when;
        if (hasResult) {
          ASSERT_TRUE(std::ranges::equal(ranks_[r]->result(tensor), results[t]))
              << when << ": rank " << r << " tensor " << t;
        }
      }
    }
  }
  std::vector<Bytes> results() const {
    std::vector<Bytes> results;
    for (uint32_t t = 0; t < plan_.model().tensors.size(); ++t) {
      const auto result = ranks_[0]->result(TensorId{t});
      results.emplace_back(result.begin(), result.end());
    }
    return results;
  }
  SteppedRank& operator[](uint32_t rank) { return *ranks_[rank]; }
  void run() { runShuffled(ranks_, random_); }

 private:
  SteppedWorld world_;
  const plan::Plan& plan_ = world_.plan();
  std::vector<std::unique_ptr<SteppedRank>>& ranks_ = world_.ranks();
  std::mt19937 random_{1};
};

// Steps, then a checkpoint from which a second job goes on, then steps and a drain.
void expectAsOneProcess(const PipeCase& c) {
  SCOPED_TRACE(describe(c));
  kernel::TestNumbers numbers(11);
  const auto parameters = someTensors(numbers, c.dtype);
  LateProcess reference(c, parameters);
  auto world = std::make_unique<PipeWorld>(c, parameters);
  for (int step = 0; step < 12; ++step) {
    if (step == 4 || step == 7) {
      const auto states = world->states();
      world = std::make_unique<PipeWorld>(c, world->results());
      for (uint32_t r = 0; r < c.world; ++r) ASSERT_TRUE(world->restore(r, states[r]).isOk());
      ASSERT_EQ(world->states(), states);
    }
    const auto gradients = someGradients(numbers, c);
    const bool hasResult = reference.step(gradients);
    world->step(gradients);
    world->expect(reference.results(), hasResult, fmt::format("step {}", step));
    if (testing::Test::HasFatalFailure()) return;
  }
  ASSERT_EQ(world->delayed(0), c.depth - 1);
  while (reference.waiting() > 0) {
    reference.apply();
    world->handOutDelayed();
    world->expect(reference.results(), true, "drain");
  }
  ASSERT_EQ(world->delayed(0), 0);
}

TEST(Pipe, AppliesGradientsLateAsOneProcessDoes) {
  for (const char* update :
       {"mean-gradient", "sgd:lr=0.1", "sgd:lr=0.1,momentum=0.9", "adam:lr=0.01"}) {
    for (const size_t depth : {1U, 2U, 3U, 5U}) {
      for (const uint64_t warmUp : {0U, 5U}) {
        for (const uint32_t world : {1U, 2U, 3U}) {
          expectAsOneProcess({.update = update, .depth = depth, .warmUp = warmUp, .world = world});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(Pipe, OfOtherTypes) {
  for (const DType dtype : {DType::kF64, DType::kBF16, DType::kF16}) {
    for (const char* update : {"sgd:lr=0.1", "mean-gradient"}) {
      if (dtype != DType::kF64 && update == std::string("mean-gradient"))
        continue;  // rounded on their way
      expectAsOneProcess({.update = update, .dtype = dtype});
    }
  }
}

TEST(Pipe, TrainingCanGoOnAfterADrain) {
  const PipeCase c{.depth = 3};
  kernel::TestNumbers numbers(5);
  const auto parameters = someTensors(numbers, c.dtype);
  LateProcess reference(c, parameters);
  PipeWorld world(c, parameters);
  for (int part = 0; part < 3; ++part) {
    for (int step = 0; step < 4; ++step) {
      const auto gradients = someGradients(numbers, c);
      const bool hasResult = reference.step(gradients);
      world.step(gradients);
      world.expect(reference.results(), hasResult, "step");
    }
    while (reference.waiting() > 0) {
      reference.apply();
      world.handOutDelayed();
      world.expect(reference.results(), true, "drain");
    }
  }
}

// The debt of codecs is part of the checkpoint, also where nothing is delayed.
TEST(Pipe, WithCodecsACheckpointChangesNothing) {
  for (const char* algorithm : {"pipe", "allreduce", "wfbp"}) {
    for (const char* codec : {"fp16", "int8"}) {
      const PipeCase c{.update = "sgd:lr=0.1,momentum=0.9", .codec = codec, .algorithm = algorithm};
      SCOPED_TRACE(fmt::format("{}, {}", algorithm, describe(c)));
      kernel::TestNumbers numbers(3);
      const auto parameters = someTensors(numbers, c.dtype);
      PipeWorld straight(c, parameters);
      auto stopped = std::make_unique<PipeWorld>(c, parameters);
      for (int step = 0; step < 9; ++step) {
        if (step == 5) {
          const auto states = stopped->states();
          stopped = std::make_unique<PipeWorld>(c, stopped->results());
          for (uint32_t r = 0; r < c.world; ++r) ASSERT_TRUE(stopped->restore(r, states[r]).isOk());
        }
        const auto gradients = someGradients(numbers, c);
        straight.step(gradients);
        stopped->step(gradients);
        const bool hasResult = step > 0 || std::string(algorithm) != "pipe";
        straight.expect(stopped->results(), hasResult, fmt::format("step {}", step));
        stopped->expect(straight.results(), hasResult, fmt::format("step {}", step));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Pipe, AnotherRanksStateHasTheSameGradients) {
  const PipeCase c{.world = 2, .codec = "int8"};
  kernel::TestNumbers numbers(3);
  PipeWorld world(c, someTensors(numbers, c.dtype));
  world.step(someGradients(numbers, c));
  const auto states = world.states();
  PipeWorld next(c, world.results());
  for (uint32_t r = 0; r < 2; ++r) ASSERT_TRUE(next.restore(r, states[0]).isOk());
  world.handOutDelayed();
  next.handOutDelayed();
  next.expect(world.results(), true, "drain");
}

TEST(Pipe, AStepDoesNotWaitForItsOwnReductionButACheckpointDoes) {
  const PipeCase c{.world = 2};
  kernel::TestNumbers numbers(3);
  PipeWorld world(c, someTensors(numbers, c.dtype));
  const auto gradients = someGradients(numbers, c);
  world.handOver(0, gradients[0]);
  std::vector<std::string> idle;
  world[0].loop().post([&] {
    world[0].strategy().whenIdle([&](const Status& status) { idle.push_back(status.toString()); });
  });
  world.run();
  EXPECT_TRUE(world[0].gates().isOpen(TensorId{0}));
  EXPECT_EQ(idle, std::vector<std::string>());
  world[0].loop().post([&] { EXPECT_FALSE(world[0].strategy().checkpoint().take().isOk()); });
  world.handOver(1, gradients[1]);
  world.run();
  EXPECT_EQ(idle, std::vector<std::string>{"ok"});
  world[0].loop().post([&] { EXPECT_TRUE(world[0].strategy().checkpoint().take().isOk()); });
  world.run();
}

TEST(Pipe, WhoWaitsForAReductionThatNeverEndsIsToldWhy) {
  const PipeCase c{.world = 2};
  kernel::TestNumbers numbers(3);
  for (const bool isLost : {false, true}) {
    PipeWorld world(c, someTensors(numbers, c.dtype));
    world.step(someGradients(numbers, c));
    world.handOver(0, someTensors(numbers, c.dtype));
    std::string said;
    world[0].loop().post([&] {
      const Status why{Code::kPeerLost, "rank 1 has ended its training after 1 steps"};
      world[0].strategy().whenIdle([&](const Status& status) { said = status.message(); });
      if (isLost) {
        world[0].strategy().fail(why);
      } else {
        world[0].strategy().endAfter(1, why);
      }
    });
    world.run();
    EXPECT_EQ(said, "rank 1 has ended its training after 1 steps");
  }
}

TEST(Pipe, RefusesAStateThatDoesNotFit) {
  const PipeCase c{.depth = 3};
  kernel::TestNumbers numbers(3);
  const auto parameters = someTensors(numbers, c.dtype);
  PipeWorld world(c, parameters);
  for (int step = 0; step < 2; ++step) world.step(someGradients(numbers, c));
  const auto state = world.states()[0];
  const struct {
    PipeCase other;
    std::string why;
  } cases[] = {
      {{.depth = 2},
       "it holds delayed gradients; use --algorithm pipe as when it was saved, or call drain() "
       "before saving"},
      {{.depth = 3, .dtype = DType::kF64}, "'conv' has another size or type in this job"},
      {{.update = "adam", .depth = 3}, "'conv' was trained with sgd, or had another size"},
  };
  for (const auto& [other, why] : cases) {
    PipeWorld stranger(other, someTensors(numbers, other.dtype));
    EXPECT_EQ(stranger.restore(0, state).message(), "the saved state does not fit: " + why);
  }
  const Status damaged = world.restore(0, Bytes(10));
  EXPECT_EQ(damaged.message(),
            "the checkpoint does not hold a saved state of training: it begins with the bytes of "
            "something else; load another one");
}

TEST(Pipe, RefusesImpossibleDepths) {
  for (const char* depth : {"0", "-1", "101"}) {
    base::Config config;
    ASSERT_TRUE(config.set(*base::findOption("pipe-depth"), depth).isOk());
    plan::PlanSpec spec;
    spec.model = modelFor(DType::kF32);
    spec.roles = plan::parseRoles("all", 2).value();
    EXPECT_EQ(algorithmNamed("pipe").choose(config, spec).message(),
              "--pipe-depth must be 1 to 100, and --pipe-warm-up at least 0");
  }
}

}  // namespace
}  // namespace sluice::algorithms
