// The contract of collective.h as a suite. Every engine's test includes this and instantiates it:
//
//   INSTANTIATE_TEST_SUITE_P(Fabrics, CollectiveContract, testing::Values(...), caseName);
//
// The ranks of a case live in this process, each with its own loop thread.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <sluice/base/testing/short_tests.h>
#include <sluice/data/collective/collective.h>
#include <sluice/data/kernel/reduce.h>
#include <sluice/data/kernel/testing/test_numbers.h>
#include <sluice/transport/fabric/common.h>
#include <sluice/transport/fabric/testing/contract_recorder.h>

namespace sluice::collective::contract {

using Bytes = std::vector<std::byte>;

// One rank's engine, and the loop it belongs to.
class Seat {
 public:
  virtual ~Seat() = default;
  virtual Loop& loop() = 0;
  virtual Collective& collective() = 0;
  virtual void die() = 0;  // without a word
};

struct EngineCase {
  std::string name;
  std::function<std::vector<std::unique_ptr<Seat>>(uint32_t world)> makeSeats;
};
inline std::string caseName(const testing::TestParamInfo<EngineCase>& info) {
  return info.param.name;
}

// A rank, whose completions are counted.
class SeatedRank final {
 public:
  explicit SeatedRank(std::unique_ptr<Seat> seat) : seat_(std::move(seat)) {}

  // Calls a method of the collective on the loop.
  void call(std::function<void(Collective&, Done)> what) {
    seat_->loop().post(
        [this, what = std::move(what), done = ends_.expect()] { what(seat_->collective(), done); });
  }
  [[nodiscard]] bool waitForAll() { return ends_.waitForAll(); }
  fabric::contract::Completions& ends() { return ends_; }
  void die() { seat_->die(); }
  void post(const std::function<void(Collective&)>& what) {
    EXPECT_TRUE(fabric::runAndWait(seat_->loop(), [&] { what(seat_->collective()); }).isOk());
  }

 private:
  fabric::contract::Completions ends_;
  std::unique_ptr<Seat> seat_;
};

class World final {
 public:
  World(const EngineCase& engine, uint32_t size) {
    for (auto& seat : engine.makeSeats(size))
      members_.push_back(std::make_unique<SeatedRank>(std::move(seat)));
  }
  ~World() {
    while (!members_.empty()) members_.pop_back();  // rank 0 last: others may stand on it
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  SeatedRank& operator[](size_t rank) { return *members_[rank]; }
  uint32_t size() const { return static_cast<uint32_t>(members_.size()); }
  void expectAllWell() {
    for (const auto& member : members_) {
      ASSERT_TRUE(member->waitForAll());
      EXPECT_EQ(member->ends().status().toString(), "ok");
    }
  }

 private:
  std::vector<std::unique_ptr<SeatedRank>> members_;
};

inline std::vector<Bytes> someData(uint32_t world, size_t elements, DType dtype) {
  kernel::TestNumbers numbers(world * 7919 + elements);
  std::vector<Bytes> data;
  for (uint32_t r = 0; r < world; ++r)
    data.push_back(numbers.elements(dtype, elements, /*ordinary=*/true));
  return data;
}

// Returns the result of servers: every part scaled, summed in rank order.
inline Bytes meanInRankOrder(const std::vector<Bytes>& data, DType dtype) {
  std::vector<std::span<const std::byte>> parts(data.begin(), data.end());
  Bytes sum(data[0].size() / sizeOf(dtype) * sizeOf(kernel::accumulatorOf(dtype)));
  kernel::sumInRankOrder(dtype, sum, parts, kernel::meanScale(data.size()));
  Bytes mean(data[0].size());
  kernel::narrow(dtype, mean, sum);
  return mean;
}

inline float at(const Bytes& bytes, size_t i) {
  return kernel::loadAt<float>(bytes.data(), i);
}

class CollectiveContract : public testing::TestWithParam<EngineCase> {
 protected:
  // Returns the mean of all ranks' data, as every rank has it.
  std::vector<Bytes> allReduce(World& world, std::vector<Bytes> data, Method method,
                               DType dtype = DType::kF32, const codec::Codec* codec = nullptr) {
    for (uint32_t r = 0; r < world.size(); ++r) {
      const Call call{.method = method, .dtype = dtype, .data = data[r]};
      world[r].call([=, &world](Collective& collective, Done done) {
        collective.allReduce(call, {.scale = kernel::meanScale(world.size()), .codec = codec},
                             std::move(done));
      });
    }
    world.expectAllWell();
    return data;
  }

  // Lets rank 3 of 4 die in a call. That is the second call of each other rank; the third comes
  // later. REQUIRES: the data outlives the world, whose ranks may still be sending.
  static void loseRank(World& world, std::vector<Bytes>& data, Method method) {
    const auto reduce = [&](uint32_t r, uint64_t step, Method how) {
      const Call call{.ticket = {Step{step}, TensorId{0}}, .method = how, .data = data[r]};
      world[r].call([=](Collective& c, Done done) { c.allReduce(call, {}, std::move(done)); });
    };
    // One round that all take part in, so that all have talked with each other.
    for (uint32_t r = 0; r < 4; ++r) reduce(r, 0, Method::kDirect);
    ASSERT_NO_FATAL_FAILURE(world.expectAllWell());
    for (uint32_t r = 0; r < 3; ++r) reduce(r, 1, method);
    world[3].die();
    for (uint32_t r = 0; r < 3; ++r) {
      ASSERT_TRUE(world[r].waitForAll());
      reduce(r, 2, Method::kDirect);
      ASSERT_TRUE(world[r].waitForAll());
    }
  }
};

inline constexpr std::array kMethods{Method::kDirect, Method::kRing, Method::kHalvingDoubling};

TEST_P(CollectiveContract, AllReduceGivesEverybodyTheSameMean) {
  const size_t most = base::testsAreShort() ? 30'000 : 300'000;
  for (const uint32_t size : {1U, 2U, 3U, 4U, 5U, 7U, 8U}) {
    World world(GetParam(), size);
    uint64_t step = 0;
    for (const Method method : kMethods) {
      for (const size_t elements : std::array<size_t, 6>{0, 1, 255, 1000, 5000, most}) {
        SCOPED_TRACE(fmt::format("{}, {} ranks, {} elements", name(method), size, elements));
        const auto input = someData(size, elements, DType::kF32);
        const Bytes expected = meanInRankOrder(input, DType::kF32);
        auto data = input;
        for (uint32_t r = 0; r < size; ++r) {
          const Call call{.ticket = {Step{step}, TensorId{3}}, .method = method, .data = data[r]};
          world[r].call([=](Collective& collective, Done done) {
            collective.allReduce(call, {.scale = kernel::meanScale(size)}, std::move(done));
          });
        }
        ++step;
        ASSERT_NO_FATAL_FAILURE(world.expectAllWell());
        for (uint32_t r = 1; r < size; ++r) ASSERT_EQ(data[r], data[0]) << "rank " << r;
        for (size_t i = 0; i < elements; ++i) ASSERT_NEAR(at(data[0], i), at(expected, i), 1e-5);
      }
    }
  }
}

TEST_P(CollectiveContract, BitsAreTheSameInEveryRun) {
  const auto input = someData(5, 70'000, DType::kF32);
  for (const Method method : kMethods) {
    std::vector<Bytes> results;
    for (int run = 0; run < 3; ++run) {
      World world(GetParam(), 5);
      results.push_back(allReduce(world, input, method)[0]);
    }
    EXPECT_EQ(results[0], results[1]) << name(method);
    EXPECT_EQ(results[0], results[2]) << name(method);
  }
}

TEST_P(CollectiveContract, ReduceScatterThenAllGatherIsAllReduce) {
  for (const Method method : kMethods) {
    for (const size_t elements : {1000U, 300'000U}) {
      World world(GetParam(), 4);
      const auto input = someData(4, elements, DType::kF32);
      auto data = input;
      for (uint32_t r = 0; r < 4; ++r) {
        const Call scatter{.ticket = {Step{0}, TensorId{0}}, .method = method, .data = data[r]};
        world[r].call([=](Collective& c, Done done) {
          c.reduceScatter(scatter, {.scale = 0.25}, std::move(done));
        });
      }
      ASSERT_NO_FATAL_FAILURE(world.expectAllWell());
      for (uint32_t r = 0; r < 4; ++r) {  // only the own part may be used
        const Range own = partOf(Rank{r}, 4, elements);
        for (size_t i = 0; i < elements; ++i) {
          if (i < own.first || i >= own.first + own.count)
            kernel::storeAt(data[r].data(), i, -99.0F);
        }
        const Call gather{.ticket = {Step{0}, TensorId{1}}, .method = method, .data = data[r]};
        world[r].call([=](Collective& c, Done done) { c.allGather(gather, std::move(done)); });
      }
      ASSERT_NO_FATAL_FAILURE(world.expectAllWell());
      const Bytes expected = meanInRankOrder(input, DType::kF32);
      for (uint32_t r = 0; r < 4; ++r) {
        ASSERT_EQ(data[r], data[0]);
        for (size_t i = 0; i < elements; ++i) ASSERT_NEAR(at(data[r], i), at(expected, i), 1e-5);
      }
    }
  }
}

TEST_P(CollectiveContract, BroadcastGivesEverybodyTheRootsBytes) {
  for (const uint32_t root : {0U, 2U}) {
    World world(GetParam(), 5);
    auto data = someData(5, 1'000'000, DType::kF32);
    const Bytes expected = data[root];
    for (uint32_t r = 0; r < 5; ++r) {
      const Call call{.ticket = {Step{0}, TensorId{0}}, .dtype = DType::kBytes, .data = data[r]};
      world[r].call(
          [=](Collective& c, Done done) { c.broadcast(call, Rank{root}, std::move(done)); });
    }
    ASSERT_NO_FATAL_FAILURE(world.expectAllWell());
    for (uint32_t r = 0; r < 5; ++r) EXPECT_EQ(data[r], expected);
  }
}

TEST_P(CollectiveContract, ManyRunAtOnce) {
  constexpr uint32_t kCalls = 20;
  World world(GetParam(), 3);
  std::vector<std::vector<Bytes>> data;
  for (uint32_t n = 0; n < kCalls; ++n) {
    data.push_back(someData(3, 100 + 3000 * n, DType::kF32));
    const Bytes expected = data[n][n % 3];
    for (uint32_t r = 0; r < 3; ++r) {
      const Call call{.ticket = {Step{n / 4}, TensorId{n}}, .data = data[n][r]};
      world[r].call(
          [=](Collective& c, Done done) { c.broadcast(call, Rank{n % 3}, std::move(done)); });
    }
  }
  ASSERT_NO_FATAL_FAILURE(world.expectAllWell());
  for (const auto& ranks : data) {
    EXPECT_EQ(ranks[0], ranks[1]);
    EXPECT_EQ(ranks[0], ranks[2]);
  }
}

TEST_P(CollectiveContract, FailureEndsWhatIsUnderWayAndAllThatComesLater) {
  auto data = someData(2, 1000, DType::kF32);  // stays until the fabric is gone, as after any error
  World world(GetParam(), 2);
  const Call call{.data = data[0]};
  world[0].call([=](Collective& c, Done done) { c.allReduce(call, {}, std::move(done)); });
  world[0].post([](Collective& c) { c.fail({Code::kCancelled, "enough"}); });
  const Call later{.ticket = {Step{1}, TensorId{0}}, .data = data[0]};
  world[0].call([=](Collective& c, Done done) { c.allReduce(later, {}, std::move(done)); });
  ASSERT_TRUE(world[0].waitForAll());
  EXPECT_EQ(world[0].ends().countOf(Code::kCancelled), 2U);
}

TEST_P(CollectiveContract, ALostRankEndsItAndAllThatComesLater) {
  for (const Method method : kMethods) {
    auto data = someData(4, 100'000, DType::kF32);
    World world(GetParam(), 4);
    ASSERT_NO_FATAL_FAILURE(loseRank(world, data, method));
    for (uint32_t r = 0; r < 3; ++r) {
      EXPECT_FALSE(world[r].ends().status(1).isOk());
      EXPECT_FALSE(world[r].ends().status(2).isOk());
    }
  }
}

}  // namespace sluice::collective::contract
