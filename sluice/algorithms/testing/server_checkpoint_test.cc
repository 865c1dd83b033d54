// A checkpoint of the optimizer that runs on the servers: stopped and resumed, training ends with
// the bits of one that was not.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sluice/algorithms/testing/stepped_world.h>
#include <sluice/data/kernel/testing/test_numbers.h>

namespace sluice::algorithms {
namespace {

using Bytes = std::vector<std::byte>;

struct ServerCase {
  std::string algorithm = "sluice";
  std::string servers = "all";
  std::string update = "adam:lr=0.01";
  DType dtype = DType::kF32;
  bool updatesWaitForWord = false;
};

std::vector<Tensor> tensorsOf(DType dtype) {
  return {{"a", 50, dtype}, {"b", 1, dtype}, {"c", 4, dtype}};
}

std::vector<Bytes> someTensorsOf(kernel::TestNumbers& numbers, DType dtype) {
  std::vector<Bytes> tensors;
  for (const auto& tensor : tensorsOf(dtype))
    tensors.push_back(numbers.elements(dtype, tensor.elements, /*ordinary=*/true));
  return tensors;
}

class ServerJob final {
 public:
  ServerJob(const ServerCase& c, const std::vector<Bytes>& parameters)
      : case_(c),
        world_(c.algorithm, c.servers, kWorld, tensorsOf(c.dtype), c.update, c.updatesWaitForWord,
               base::Config(), parameters) {}

  // Every rank has gradients of its own. The last `absent` tensors get no gradient on any rank.
  void step(kernel::TestNumbers& numbers, uint32_t absent = 0) {
    for (uint32_t r = 0; r < kWorld; ++r) handOver(r, numbers, absent);
    run();
    for (const auto& rank : world_.ranks()) {
      for (uint32_t t = 0; t < 3; ++t)
        ASSERT_TRUE(rank->gates().isOpen(TensorId{t}))
            << rank->strategy().describeWait(TensorId{t});
    }
  }
  void handOver(uint32_t r, kernel::TestNumbers& numbers, uint32_t absent = 0) {
    SteppedRank& rank = *world_.ranks()[r];
    const auto gradients = someTensorsOf(numbers, case_.dtype);
    for (uint32_t t = 3; t-- > 0;) {
      if (t < 3 - absent) {
        rank.gradientReady(TensorId{t}, gradients[t]);
        continue;
      }
      const Step step = rank.gates().close(TensorId{t}).value();
      rank.loop().post([&rank, t, step] {
        rank.strategy().contribute({TensorId{t}, step, /*hasGradient=*/false});
      });
    }
    if (!case_.updatesWaitForWord) return;
    rank.loop().post([&rank] { EXPECT_TRUE(rank.strategy().decide(Decision::kUpdate).isOk()); });
  }

  Result<Bytes> state(uint32_t rank) {
    Result<Bytes> state = Bytes();
    world_.ranks()[rank]->loop().post(
        [&] { state = world_.ranks()[rank]->strategy().checkpoint().take(); });
    run();
    return state;
  }
  Status restore(uint32_t rank, const Bytes& state) {
    Status restored;
    world_.ranks()[rank]->loop().post(
        [&] { restored = world_.ranks()[rank]->strategy().checkpoint().restore(state); });
    run();
    return restored;
  }
  std::vector<Bytes> parameters(uint32_t rank) {
    std::vector<Bytes> all;
    for (uint32_t t = 0; t < 3; ++t) {
      const auto result = world_.ranks()[rank]->result(TensorId{t});
      all.emplace_back(result.begin(), result.end());
    }
    return all;
  }
  std::span<std::byte> place(uint32_t rank, uint32_t tensor) {
    return world_.ranks()[rank]->place(TensorId{tensor});
  }
  void expectSameAs(ServerJob& other) {
    for (uint32_t r = 0; r < kWorld; ++r)
      EXPECT_EQ(parameters(r), other.parameters(0)) << "rank " << r;
  }
  std::set<Rank> ahead(uint32_t rank) { return world_.ranks()[rank]->strategy().ahead(); }
  void run() { runShuffled(world_.ranks(), random_); }

  static constexpr uint32_t kWorld = 3;

 private:
  const ServerCase case_;
  SteppedWorld world_;
  std::mt19937 random_{5};
};

void expectResumedAsUninterrupted(const ServerCase& c) {
  SCOPED_TRACE(fmt::format("{} {} {} {} {}", c.algorithm, c.servers, c.update, name(c.dtype),
                           c.updatesWaitForWord));
  kernel::TestNumbers first(1);
  const auto parameters = someTensorsOf(first, c.dtype);
  kernel::TestNumbers forStraight(2);
  kernel::TestNumbers forStopped(2);
  ServerJob straight(c, parameters);
  auto stopped = std::make_unique<ServerJob>(c, parameters);
  for (int step = 0; step < 8; ++step) {
    if (step == 2 || step == 5) {
      auto next = std::make_unique<ServerJob>(c, stopped->parameters(0));
      for (uint32_t r = 0; r < ServerJob::kWorld; ++r) {
        const auto state = stopped->state(r);
        ASSERT_TRUE(state.isOk()) << state.status().toString();
        ASSERT_TRUE(next->restore(r, *state).isOk());
        EXPECT_EQ(*next->state(r), *state);
      }
      stopped = std::move(next);
    }
    // The last tensor begins late: its own steps are fewer.
    const uint32_t absent = step < 4 ? 1 : 0;
    straight.step(forStraight, absent);
    stopped->step(forStopped, absent);
    if (testing::Test::HasFatalFailure()) return;
    stopped->expectSameAs(straight);
  }
}

TEST(ServerCheckpoint, ResumedIsAsUninterrupted) {
  for (const char* update :
       {"sgd:lr=0.1", "sgd:lr=0.1,momentum=0.9,dampening=0.5", "adam:lr=0.01", "adamw"}) {
    for (const char* algorithm : {"kvstore", "p3", "sluice"}) {
      for (const char* servers : {"all", "1", "2"}) {
        expectResumedAsUninterrupted(
            {.algorithm = algorithm, .servers = servers, .update = update});
        if (HasFailure()) return;
      }
    }
  }
}

TEST(ServerCheckpoint, OfOtherTypesAndWithUpdatesThatWait) {
  for (const DType dtype : {DType::kF64, DType::kBF16, DType::kF16}) {
    for (const bool wait : {false, true})
      expectResumedAsUninterrupted(
          {.update = "adam:lr=0.01", .dtype = dtype, .updatesWaitForWord = wait});
  }
}

// A checkpoint can be put back into a job that has gone on: with the parameters that its caller has
// put back.
TEST(ServerCheckpoint, InPlaceParametersAreReadAgain) {
  const ServerCase c{.update = "sgd:lr=0.1,momentum=0.9"};
  kernel::TestNumbers first(1);
  ServerJob job(c, someTensorsOf(first, c.dtype));
  kernel::TestNumbers numbers(2);
  job.step(numbers);
  std::vector<Bytes> states;
  for (uint32_t r = 0; r < ServerJob::kWorld; ++r) states.push_back(*job.state(r));
  ServerJob copy(c, job.parameters(0));
  kernel::TestNumbers other(3);
  copy.step(other);  // somewhere else
  for (uint32_t r = 0; r < ServerJob::kWorld; ++r) {
    for (uint32_t t = 0; t < 3; ++t) {
      const auto place = copy.place(r, t);
      std::ranges::copy(job.parameters(0)[t], place.begin());
    }
    ASSERT_TRUE(copy.restore(r, states[r]).isOk());
  }
  kernel::TestNumbers one(4);
  kernel::TestNumbers two(4);
  job.step(one);
  copy.step(two);
  copy.expectSameAs(job);
}

TEST(ServerCheckpoint, IsThatOfTheLastStepWhateverHasComeOfTheNext) {
  const ServerCase c;
  kernel::TestNumbers numbers(1);
  ServerJob job(c, someTensorsOf(numbers, c.dtype));
  job.step(numbers);
  const Bytes before = *job.state(0);
  EXPECT_EQ(job.ahead(0), std::set<Rank>());
  job.handOver(1, numbers);
  job.handOver(2, numbers);
  job.run();
  EXPECT_EQ(*job.state(0), before);
  EXPECT_EQ(job.ahead(0), (std::set<Rank>{Rank{1}, Rank{2}}));
}

TEST(ServerCheckpoint, RefusesWhatDoesNotFit) {
  kernel::TestNumbers numbers(1);
  const ServerCase c;
  ServerJob job(c, someTensorsOf(numbers, c.dtype));
  job.step(numbers);
  const Bytes state = *job.state(0);
  EXPECT_TRUE(job.restore(1, state).message().starts_with(
      "the saved state does not fit: a slice of 'a' is not served here"));
  EXPECT_EQ(*job.state(0), state);
  ServerJob sgd({.update = "sgd:lr=0.1"}, someTensorsOf(numbers, c.dtype));
  EXPECT_EQ(sgd.restore(0, state).message(),
            "the saved state does not fit: 'a' was trained with adam, or cut into other slices; "
            "use the same optimizer, servers and --slice-elements as then");
  EXPECT_EQ(job.restore(0, Bytes(10)).code(), Code::kDataLoss);
  ASSERT_TRUE(job.restore(0, {}).isOk());  // as if it began
  EXPECT_NE(*job.state(0), state);
}

TEST(ServerCheckpoint, OfRanksThatOnlyServeIsRefused) {
  kernel::TestNumbers numbers(1);
  const ServerCase c{.servers = "dedicated:1"};
  ServerJob job(c, someTensorsOf(numbers, c.dtype));
  EXPECT_EQ(
      job.state(0).status().message(),
      "the optimizer's state is on ranks that only serve, and cannot be saved; use servers=all");
}

TEST(ServerCheckpoint, OfMeanGradientsIsNothing) {
  kernel::TestNumbers numbers(1);
  const ServerCase c{.update = "mean-gradient"};
  ServerJob job(c, someTensorsOf(numbers, c.dtype));
  EXPECT_EQ(*job.state(0), Bytes());
  EXPECT_FALSE(job.restore(0, Bytes(4)).isOk());
}

}  // namespace
}  // namespace sluice::algorithms
