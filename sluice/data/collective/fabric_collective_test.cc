// The contract of Collective over the loopback and the tcp fabric, and what only this engine
// promises: bits, codecs, calls in any order, and names of ranks.
#include <sluice/data/collective/fabric_collective.h>

#include <cstring>
#include <random>

#include <gtest/gtest.h>

#include <sluice/base/testing/short_tests.h>
#include <sluice/data/collective/testing/contract_suite.h>
#include <sluice/transport/fabric/loopback/loopback_fabric.h>
#include <sluice/transport/fabric/tcp/tcp_fabric.h>

namespace sluice::collective::contract {
namespace {

using namespace std::chrono_literals;
using fabric::contract::Engine;

class LoopbackEngine final : public Engine {
 public:
  explicit LoopbackEngine(size_t size) : world_(size), hub_(size) {}
  fabric::contract::World& world() override { return world_; }
  std::unique_ptr<fabric::Fabric> make(Rank rank, fabric::Receiver& receiver) override {
    return hub_.join(rank, world_.loop(index(rank)), receiver, {.closeDeadline = 1s});
  }

 private:
  fabric::contract::ThreadWorld world_;
  fabric::LoopbackHub hub_;
};

class TcpEngine final : public Engine {
 public:
  explicit TcpEngine(size_t size) : world_(size) {
    for (size_t i = 0; i < size; ++i) {
      listeners_.push_back(fabric::TcpListener::open(Address::loopback(0)).value());
      membership_.addresses.push_back(listeners_.back().address());
    }
    membership_.key = secret::JobKey::random();
  }
  fabric::contract::World& world() override { return world_; }
  std::unique_ptr<fabric::Fabric> make(Rank rank, fabric::Receiver& receiver) override {
    fabric::TcpMembership mine = membership_;
    mine.rank = rank;
    fabric::TcpOptions options;
    options.encrypt = fabric::Encrypt::kOff;
    options.closeDeadline = 2s;
    return makeTcpFabric(world_.loop(index(rank)), std::move(listeners_[index(rank)]), mine,
                         options, receiver)
        .value();
  }

 private:
  fabric::contract::ThreadWorld world_;
  fabric::TcpMembership membership_;
  std::vector<fabric::TcpListener> listeners_;
};

class FabricSeat final : public CollectiveSeat, public fabric::Receiver {
 public:
  FabricSeat(std::shared_ptr<Engine> engine, Rank rank)
      : engine_(std::move(engine)),
        loop_(engine_->world().loop(index(rank))),
        fabric_(engine_->make(rank, *this)) {
    fabric::runBeforeFreeing(
        loop_, [this] { collective_ = std::make_unique<FabricCollective>(*fabric_); });
  }
  ~FabricSeat() override { fabric_.reset(); }

  Loop& loop() override { return loop_; }
  Collective& collective() override { return *collective_; }
  void die() override { fabric_.reset(); }

  Result<fabric::Landing> onMessage(Rank from, fabric::Lane lane,
                                    const wire::Header& header) override {
    if (collective_ == nullptr) return Status(Code::kRefused, "not begun");
    return collective_->onMessage(from, lane, header);
  }
  void onPeerLost(Rank, const Status& why) override { collective_->fail(why); }
  void onPeerLeft(Rank) override {}

 private:
  const std::shared_ptr<Engine> engine_;
  Loop& loop_;
  std::unique_ptr<FabricCollective> collective_;
  std::unique_ptr<fabric::Fabric> fabric_;
};

template <typename E>
CollectiveCase engineCase(std::string name) {
  return {std::move(name), [](uint32_t world) {
            const auto engine = std::make_shared<E>(world);
            std::vector<std::unique_ptr<CollectiveSeat>> seats;
            for (uint32_t r = 0; r < world; ++r)
              seats.push_back(std::make_unique<FabricSeat>(engine, Rank{r}));
            return seats;
          }};
}

INSTANTIATE_TEST_SUITE_P(Fabrics, CollectiveContract,
                         testing::Values(engineCase<LoopbackEngine>("loopback"),
                                         engineCase<TcpEngine>("tcp")),
                         caseName);

class FabricCollectiveTest : public CollectiveContract {};
INSTANTIATE_TEST_SUITE_P(Fabrics, FabricCollectiveTest,
                         testing::Values(engineCase<LoopbackEngine>("loopback"),
                                         engineCase<TcpEngine>("tcp")),
                         caseName);

TEST_P(FabricCollectiveTest, DirectHasTheBitsOfServers) {
  for (const uint32_t size : {1U, 2U, 3U, 4U, 5U, 7U, 8U}) {
    for (const size_t elements : {0U, 1U, 255U, 1000U, 5000U, 300'000U}) {
      if (elements > 5000 && size != 3 && base::testsAreShort()) continue;
      CollectiveWorld world(GetParam(), size);
      const auto input = someData(size, elements, DType::kF32);
      for (const auto& each : allReduce(world, input, Method::kDirect))
        ASSERT_EQ(each, meanInRankOrder(input, DType::kF32)) << size << " ranks, " << elements;
    }
  }
}

// Some ranks are strips ahead of others then.
TEST_P(FabricCollectiveTest, ManyMoreStripsThanAreUnderWayAtOnce) {
  const auto input = someData(4, base::testsAreShort() ? 2'000'000 : 3'000'000, DType::kF32);
  for (const Method method : kMethods) {
    CollectiveWorld world(GetParam(), 4);
    const auto data = allReduce(world, input, method);
    for (uint32_t r = 1; r < 4; ++r)
      ASSERT_TRUE(data[r] == data[0]) << name(method) << ", rank " << r;
    if (method == Method::kDirect) {
      ASSERT_TRUE(data[0] == meanInRankOrder(input, DType::kF32));
    }
  }
}

TEST_P(FabricCollectiveTest, AnyNumberOfStripsHasTheSameBits) {
  const auto input = someData(3, 5000, DType::kF32);
  for (const uint32_t strips : {1U, 2U, 7U, 100U}) {
    CollectiveWorld world(GetParam(), 3);
    auto data = input;
    for (uint32_t r = 0; r < 3; ++r) {
      const Call call{.method = Method::kDirect, .data = data[r], .strips = strips};
      world[r].call([=](Collective& collective, Done done) {
        collective.allReduce(call, {.scale = kernel::meanScale(3)}, std::move(done));
      });
    }
    ASSERT_NO_FATAL_FAILURE(world.expectAllWell());
    for (const auto& each : data)
      EXPECT_EQ(each, meanInRankOrder(input, DType::kF32)) << strips << " strips";
  }
}

TEST_P(FabricCollectiveTest, OtherTypesAreSummedToo) {
  for (const DType dtype : {DType::kF64, DType::kBF16, DType::kF16}) {
    CollectiveWorld world(GetParam(), 3);
    const auto input = someData(3, 2000, dtype);
    const auto data = allReduce(world, input, Method::kDirect, dtype);
    for (const auto& each : data)
      EXPECT_EQ(each, meanInRankOrder(input, dtype)) << sluice::name(dtype);
  }
}

TEST_P(FabricCollectiveTest, CodecsKeepRanksBitIdenticalAndWithinTheirLimit) {
  for (const codec::Codec* codec : {&codec::kFp16, &codec::kBf16, &codec::kInt8}) {
    for (const Method method : kMethods) {
      for (const uint32_t size : {2U, 3U, 4U, 6U}) {
        for (const size_t elements : {100U, 40'000U, 700'000U}) {
          SCOPED_TRACE(fmt::format("{}, {}, {} ranks, {} elements", codec->name(), name(method),
                                   size, elements));
          if (elements > 40'000 && (size != 3 || (base::testsAreShort() && codec != &codec::kInt8)))
            continue;
          CollectiveWorld world(GetParam(), size);
          const auto input = someData(size, elements, DType::kF32);
          const Bytes expected = meanInRankOrder(input, DType::kF32);
          const auto data = allReduce(world, input, method, DType::kF32, codec);
          for (uint32_t r = 1; r < size; ++r) ASSERT_EQ(data[r], data[0]) << "rank " << r;
          // Numbers are below 1. Each hop adds at most one error of a partial sum that is below 1
          // too; directly, the errors of all parts are scaled as the parts are.
          const double hops = method == Method::kDirect ? 2 : 2 * size;
          for (size_t i = 0; i < elements; ++i)
            ASSERT_NEAR(at(data[0], i), at(expected, i), hops * codec->errorLimit(1.0) + 1e-5) << i;
        }
      }
    }
  }
}

TEST_P(FabricCollectiveTest, ManyRunAtOnceInAnyOrder) {
  constexpr uint32_t kCalls = 20;
  CollectiveWorld world(GetParam(), 4);
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
      world[r].call(
          [=](Collective& c, Done done) { c.allReduce(call, {.scale = 0.25}, std::move(done)); });
    }
  }
  ASSERT_NO_FATAL_FAILURE(world.expectAllWell());
  for (uint32_t n = 0; n < kCalls; ++n) {
    for (uint32_t r = 0; r < 4; ++r) EXPECT_EQ(data[n][r], expected[n]) << n;
  }
}

TEST_P(FabricCollectiveTest, ALostRankIsNamed) {
  for (const Method method : kMethods) {
    auto data = someData(4, 100'000, DType::kF32);
    CollectiveWorld world(GetParam(), 4);
    ASSERT_NO_FATAL_FAILURE(loseRank(world, data, method));
    for (uint32_t r = 0; r < 3; ++r) {
      for (const size_t call : {1U, 2U}) {
        const Status status = world[r].ends().status(call);
        EXPECT_EQ(status.code(), Code::kPeerLost);
        EXPECT_NE(status.message().find("rank 3"), std::string::npos) << status.message();
      }
    }
  }
}

TEST_P(FabricCollectiveTest, AWaitNamesTheStraggler) {
  CollectiveWorld world(GetParam(), 3);
  auto data = someData(3, 3000, DType::kF32);
  for (uint32_t r = 0; r < 2; ++r) {
    const Call call{.ticket = {Step{0}, TensorId{0}}, .data = data[r]};
    world[r].call([=](Collective& c, Done done) { c.allReduce(call, {}, std::move(done)); });
  }
  const std::string_view expected = "1 of 1 strips are not done; waits for what rank 2 sends";
  const auto until = std::chrono::steady_clock::now() + fabric::contract::kPatience;
  std::string said;
  while (said != expected && std::chrono::steady_clock::now() < until) {
    world[0].post([&](Collective& c) { said = c.describeWait({Step{0}, TensorId{0}}); });
  }
  EXPECT_EQ(said, expected);
  const Call call{.ticket = {Step{0}, TensorId{0}}, .data = data[2]};
  world[2].call([=](Collective& c, Done done) { c.allReduce(call, {}, std::move(done)); });
  world.expectAllWell();
}

TEST_P(FabricCollectiveTest, WhatCannotBeIsRefused) {
  CollectiveWorld world(GetParam(), 1);
  Bytes data(64);
  const auto expect = [&](const Call& call, const ReductionOptions& reduction,
                          const std::string& why) {
    world[0].call([&](Collective& c, Done done) {
      c.allReduce(call, reduction, [&, done](const Status& status) {
        EXPECT_EQ(status.message(), why);
        done(status);
      });
    });
    EXPECT_TRUE(world[0].waitForAll());
  };
  expect({.dtype = DType::kF64, .data = data}, {.codec = &codec::kInt8},
         "codec int8 takes f32, not f64");
  expect({.dtype = DType::kBytes, .data = data}, {.scale = 0.5},
         "tensors of type bytes cannot be summed; use f32, f64, bf16 or f16");
}

}  // namespace
}  // namespace sluice::collective::contract
