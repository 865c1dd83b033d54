// The contract of Collective, over the loopback and the tcp fabric, with every method and codec.
#include <sluice/collective/fabric_collective.h>

#include <array>
#include <cstring>
#include <random>

#include <gtest/gtest.h>

#include <sluice/fabric/common.h>
#include <sluice/fabric/contract_world.h>
#include <sluice/fabric/loopback/loopback_fabric.h>
#include <sluice/fabric/tcp/tcp_fabric.h>
#include <sluice/kernel/reduce.h>
#include <sluice/kernel/test_numbers.h>

namespace sluice::collective {
namespace {

using namespace std::chrono_literals;
using fabric::contract::Engine;
using fabric::contract::EngineCase;
using Bytes = std::vector<std::byte>;

class LoopbackEngine final : public Engine {
 public:
  explicit LoopbackEngine(size_t world) : hub_(world) {}
  std::unique_ptr<fabric::Fabric> make(Rank rank, base::EpollLoop& loop,
                                       fabric::Receiver& receiver) override {
    return hub_.join(rank, loop, receiver, {.closeDeadline = 1s});
  }

 private:
  fabric::LoopbackHub hub_;
};

class TcpEngine final : public Engine {
 public:
  explicit TcpEngine(size_t world) {
    for (size_t i = 0; i < world; ++i) {
      listeners_.push_back(fabric::TcpListener::open(Address::loopback(0)).value());
      membership_.addresses.push_back(listeners_.back().address());
    }
    membership_.key = secret::JobKey::random();
  }
  std::unique_ptr<fabric::Fabric> make(Rank rank, base::EpollLoop& loop,
                                       fabric::Receiver& receiver) override {
    fabric::TcpMembership mine = membership_;
    mine.rank = rank;
    fabric::TcpOptions options;
    options.encrypt = fabric::Encrypt::kOff;
    options.closeDeadline = 2s;
    return makeTcpFabric(loop, std::move(listeners_[index(rank)]), mine, options, receiver).value();
  }

 private:
  fabric::TcpMembership membership_;
  std::vector<fabric::TcpListener> listeners_;
};

// One rank with a thread of its own.
class Member final : public fabric::Receiver {
 public:
  Member(Engine& engine, Rank rank) : fabric_(engine.make(rank, thread_.loop(), *this)) {
    fabric::runAndWait(thread_.loop(),
                       [this] { collective_ = std::make_unique<FabricCollective>(*fabric_); });
  }
  ~Member() override { fabric_.reset(); }

  // Calls a method of the collective on the loop; the completion is counted.
  void call(std::function<void(Collective&, Done)> what) {
    thread_.loop().post([this, what = std::move(what), done = ends_.expect()] { what(*collective_, done); });
  }
  [[nodiscard]] bool waitForAll() { return ends_.waitForAll(); }
  fabric::contract::Completions& ends() { return ends_; }
  void die() { fabric_.reset(); }
  void post(std::function<void(FabricCollective&)> what) {
    fabric::runAndWait(thread_.loop(), [&] { what(*collective_); });
  }

  Result<fabric::Landing> onMessage(Rank from, fabric::Lane lane, const wire::Header& header) override {
    if (collective_ == nullptr) return Status(Code::kRefused, "not begun");
    return collective_->onMessage(from, lane, header);
  }
  void onPeerLost(Rank, const Status& why) override { collective_->fail(why); }
  void onPeerLeft(Rank) override {}

 private:
  fabric::contract::Completions ends_;
  base::LoopThread thread_{"rank"};
  std::unique_ptr<FabricCollective> collective_;
  std::unique_ptr<fabric::Fabric> fabric_;
};

class World final {
 public:
  World(const EngineCase& engine, uint32_t size) : engine_(engine.makeEngine(size)) {
    for (uint32_t r = 0; r < size; ++r) members_.push_back(std::make_unique<Member>(*engine_, Rank{r}));
  }
  ~World() { members_.clear(); }
  Member& operator[](size_t rank) { return *members_[rank]; }
  uint32_t size() const { return static_cast<uint32_t>(members_.size()); }
  void expectAllWell() {
    for (const auto& member : members_) {
      ASSERT_TRUE(member->waitForAll());
      EXPECT_EQ(member->ends().status().toString(), "ok");
    }
  }

 private:
  const std::unique_ptr<Engine> engine_;
  std::vector<std::unique_ptr<Member>> members_;
};

std::vector<Bytes> someData(uint32_t world, size_t elements, DType dtype) {
  kernel::TestNumbers numbers(world * 7919 + elements);
  std::vector<Bytes> data;
  for (uint32_t r = 0; r < world; ++r) data.push_back(numbers.elements(dtype, elements, /*ordinary=*/true));
  return data;
}

// What the servers have: every part scaled, summed in rank order.
Bytes meanInRankOrder(const std::vector<Bytes>& data, DType dtype) {
  std::vector<std::span<const std::byte>> parts(data.begin(), data.end());
  Bytes sum(data[0].size() / sizeOf(dtype) * sizeOf(kernel::accumulatorOf(dtype)));
  kernel::sumInRankOrder(dtype, sum, parts, kernel::meanScale(data.size()));
  Bytes mean(data[0].size());
  kernel::narrow(dtype, mean, sum);
  return mean;
}

float at(const Bytes& bytes, size_t i) {
  return kernel::loadAt<float>(bytes.data(), i);
}

class CollectiveContract : public testing::TestWithParam<EngineCase> {
 protected:
  // Everybody's mean, on every rank.
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
};

constexpr std::array kMethods{Method::kDirect, Method::kRing, Method::kHalvingDoubling};
const std::vector<size_t> kSizes{0, 1, 255, 1000, 5000, 300'000};

TEST_P(CollectiveContract, AllReduceGivesEverybodyTheSameMean) {
  for (const uint32_t size : {1U, 2U, 3U, 4U, 5U, 7U, 8U}) {
    World world(GetParam(), size);
    uint64_t step = 0;
    for (const Method method : kMethods) {
      for (const size_t elements : kSizes) {
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
        if (method == Method::kDirect) {
          ASSERT_EQ(data[0], expected);  // bit for bit what servers have
        } else {
          for (size_t i = 0; i < elements; ++i) ASSERT_NEAR(at(data[0], i), at(expected, i), 1e-5);
        }
      }
    }
  }
}

// Some ranks are strips ahead of others then.
TEST_P(CollectiveContract, ManyMoreStripsThanAreUnderWayAtOnce) {
  const auto input = someData(4, 3'000'000, DType::kF32);
  for (const Method method : kMethods) {
    World world(GetParam(), 4);
    const auto data = allReduce(world, input, method);
    for (uint32_t r = 1; r < 4; ++r) ASSERT_TRUE(data[r] == data[0]) << name(method) << ", rank " << r;
    if (method == Method::kDirect) {
      ASSERT_TRUE(data[0] == meanInRankOrder(input, DType::kF32));
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

TEST_P(CollectiveContract, OtherTypesAreSummedToo) {
  for (const DType dtype : {DType::kF64, DType::kBF16, DType::kF16}) {
    World world(GetParam(), 3);
    const auto input = someData(3, 2000, dtype);
    const auto data = allReduce(world, input, Method::kDirect, dtype);
    for (const auto& each : data) EXPECT_EQ(each, meanInRankOrder(input, dtype)) << plan::name(dtype);
  }
}

TEST_P(CollectiveContract, CodecsKeepRanksBitIdenticalAndWithinTheirLimit) {
  for (const codec::Codec* codec : {&codec::kFp16, &codec::kBf16, &codec::kInt8}) {
    for (const Method method : kMethods) {
      for (const uint32_t size : {2U, 3U, 4U, 6U}) {
        for (const size_t elements : {100U, 40'000U, 700'000U}) {
          SCOPED_TRACE(
              fmt::format("{}, {}, {} ranks, {} elements", codec->name(), name(method), size, elements));
          if (elements > 40'000 && size != 3) continue;
          World world(GetParam(), size);
          const auto input = someData(size, elements, DType::kF32);
          const Bytes expected = meanInRankOrder(input, DType::kF32);
          const auto data = allReduce(world, input, method, DType::kF32, codec);
          for (uint32_t r = 1; r < size; ++r) ASSERT_EQ(data[r], data[0]) << "rank " << r;
          // Numbers are below 1. Each hop adds at most one error of a partial sum that is below 1 too;
          // directly, the errors of all parts are scaled as the parts are.
          const double hops = method == Method::kDirect ? 2 : 2 * size;
          for (size_t i = 0; i < elements; ++i)
            ASSERT_NEAR(at(data[0], i), at(expected, i), hops * codec->errorLimit(1.0) + 1e-5) << i;
        }
      }
    }
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
        world[r].call(
            [=](Collective& c, Done done) { c.reduceScatter(scatter, {.scale = 0.25}, std::move(done)); });
      }
      ASSERT_NO_FATAL_FAILURE(world.expectAllWell());
      for (uint32_t r = 0; r < 4; ++r) {  // only the own part may be used
        const Range own = partOf(Rank{r}, 4, elements);
        for (size_t i = 0; i < elements; ++i) {
          if (i < own.first || i >= own.first + own.count) kernel::storeAt(data[r].data(), i, -99.0F);
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
      world[r].call([=](Collective& c, Done done) { c.broadcast(call, Rank{root}, std::move(done)); });
    }
    ASSERT_NO_FATAL_FAILURE(world.expectAllWell());
    for (uint32_t r = 0; r < 5; ++r) EXPECT_EQ(data[r], expected);
  }
}

TEST_P(CollectiveContract, ManyRunAtOnceInAnyOrder) {
  constexpr uint32_t kCalls = 20;
  World world(GetParam(), 4);
  std::vector<std::vector<Bytes>> data;
  std::vector<Bytes> expected;
  for (uint32_t n = 0; n < kCalls; ++n) {
    data.push_back(someData(4, 100 + 3000 * n, DType::kF32));
    expected.push_back(meanInRankOrder(data[n], DType::kF32));
  }
  std::mt19937 random(3);
  for (uint32_t r = 0; r < 4; ++r) {
    std::vector<uint32_t> order(kCalls);
    std::iota(order.begin(), order.end(), 0U);
    std::ranges::shuffle(order, random);
    for (const uint32_t n : order) {
      const Call call{.ticket = {Step{n / 4}, TensorId{n}}, .data = data[n][r]};
      world[r].call([=](Collective& c, Done done) { c.allReduce(call, {.scale = 0.25}, std::move(done)); });
    }
  }
  ASSERT_NO_FATAL_FAILURE(world.expectAllWell());
  for (uint32_t n = 0; n < kCalls; ++n) {
    for (uint32_t r = 0; r < 4; ++r) EXPECT_EQ(data[n][r], expected[n]) << n;
  }
}

TEST_P(CollectiveContract, ALostRankEndsItWithItsName) {
  for (const Method method : kMethods) {
    World world(GetParam(), 4);
    auto data = someData(4, 100'000, DType::kF32);
    // One round that all take part in, so that all have talked with each other.
    for (uint32_t r = 0; r < 4; ++r) {
      const Call call{.ticket = {Step{0}, TensorId{0}}, .data = data[r]};
      world[r].call([=](Collective& c, Done done) { c.allReduce(call, {}, std::move(done)); });
    }
    ASSERT_NO_FATAL_FAILURE(world.expectAllWell());
    for (uint32_t r = 0; r < 3; ++r) {
      const Call call{.ticket = {Step{1}, TensorId{0}}, .method = method, .data = data[r]};
      world[r].call([=](Collective& c, Done done) { c.allReduce(call, {}, std::move(done)); });
    }
    world[3].die();
    for (uint32_t r = 0; r < 3; ++r) {
      ASSERT_TRUE(world[r].waitForAll());
      EXPECT_EQ(world[r].ends().status(1).code(), Code::kPeerLost);
      EXPECT_NE(world[r].ends().status(1).message().find("rank 3"), std::string::npos)
          << world[r].ends().status(1).message();
      // And so does what comes later.
      const Call call{.ticket = {Step{2}, TensorId{0}}, .data = data[r]};
      world[r].call([=](Collective& c, Done done) { c.allReduce(call, {}, std::move(done)); });
      ASSERT_TRUE(world[r].waitForAll());
      EXPECT_EQ(world[r].ends().status(2).code(), Code::kPeerLost);
    }
  }
}

TEST_P(CollectiveContract, AWaitNamesTheStraggler) {
  World world(GetParam(), 3);
  auto data = someData(3, 3000, DType::kF32);
  for (uint32_t r = 0; r < 2; ++r) {
    const Call call{.ticket = {Step{0}, TensorId{0}}, .data = data[r]};
    world[r].call([=](Collective& c, Done done) { c.allReduce(call, {}, std::move(done)); });
  }
  std::string said;
  for (int tries = 0; tries < 1000 && said != "1 of 1 strips are not done; waits for what rank 2 sends";
       ++tries) {
    world[0].post([&](FabricCollective& c) { said = c.describeWait({Step{0}, TensorId{0}}); });
  }
  EXPECT_EQ(said, "1 of 1 strips are not done; waits for what rank 2 sends");
  const Call call{.ticket = {Step{0}, TensorId{0}}, .data = data[2]};
  world[2].call([=](Collective& c, Done done) { c.allReduce(call, {}, std::move(done)); });
  world.expectAllWell();
}

TEST_P(CollectiveContract, WhatCannotBeIsRefused) {
  World world(GetParam(), 1);
  Bytes data(64);
  const auto expect = [&](const Call& call, const Reduction& reduction, const std::string& why) {
    world[0].call([&](Collective& c, Done done) {
      c.allReduce(call, reduction, [&, done](const Status& status) {
        EXPECT_EQ(status.message(), why);
        done(status);
      });
    });
    EXPECT_TRUE(world[0].waitForAll());
  };
  expect({.dtype = DType::kF64, .data = data}, {.codec = &codec::kInt8}, "codec int8 takes f32, not f64");
  expect({.dtype = DType::kBytes, .data = data}, {.scale = 0.5},
         "tensors of type bytes cannot be summed; use f32, f64, bf16 or f16");
}

template <typename E>
EngineCase engineCase(std::string name) {
  return {std::move(name),
          [](size_t world) -> std::unique_ptr<Engine> { return std::make_unique<E>(world); }};
}

INSTANTIATE_TEST_SUITE_P(Fabrics, CollectiveContract,
                         testing::Values(engineCase<LoopbackEngine>("loopback"),
                                         engineCase<TcpEngine>("tcp")),
                         [](const auto& engine) { return engine.param.name; });

}  // namespace
}  // namespace sluice::collective
