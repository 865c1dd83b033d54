// Checkpoints of training over servers are read as written, refused if they do not fit, and
// training goes on from one as if it had not stopped.
#include <sluice/algorithms/server/centre_state.h>

#include <cstring>
#include <map>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sluice/algorithms/catalogue/stale_training.h>
#include <sluice/algorithms/dgc/dgc_options.h>
#include <sluice/algorithms/server/held_slice.h>
#include <sluice/algorithms/testing/stepped_world.h>
#include <sluice/base/testing/hex.h>
#include <sluice/data/kernel/element.h>

namespace sluice::algorithms {
namespace {

CentreState exampleState() {
  optimizer::OptimizerState optimizer("sgd", DType::kF32, 2);
  optimizer.countStep();
  std::ranges::fill(optimizer.buffer(0), std::byte{7});
  CentreState state{.rank = 3, .steps = 12};
  state.tensors.push_back({.name = "w",
                           .centre = std::vector<std::byte>(16, std::byte{1}),
                           .served = {{0, optimizer}, {2, optimizer}},
                           .own = std::vector<std::byte>(16, std::byte{2}),
                           .residual = std::vector<std::byte>(16, std::byte{3}),
                           .velocity = std::vector<std::byte>(16, std::byte{4}),
                           .local = {{2, optimizer}}});
  return state;
}

plan::Plan planOf(std::vector<Tensor> tensors, uint64_t sliceElements) {
  plan::PlanSpec spec;
  spec.model.tensors = std::move(tensors);
  spec.roles = plan::parseRoles("all", 2).value();
  spec.slicing = {.placement = plan::Placement::kRoundRobin, .sliceElements = sliceElements};
  return plan::Plan::make(spec).value();
}

TEST(CentreState, IsReadAsItWasWritten) {
  const CentreState state = exampleState();
  EXPECT_EQ(CentreState::fromBytes(state.toBytes()).value(), state);
}

// Checkpoints of every release of one major version are read by the next: a change here needs a new
// version of the format, and a reader of the old one (docs/stability.md).
TEST(CentreState, TheBytesOfVersion1AreFixed) {
  const std::string slice =
      "2400000000000000"
      "534c4f500101020000000000000001000000000000000373676401010707070707070707";
  EXPECT_EQ(base::hexOf(exampleState().toBytes()),
            "53545243"
            "01"
            "03000000"
            "0c00000000000000"
            "01000000"
            "0100000077"
            "100000000000000001010101010101010101010101010101"
            "100000000000000002020202020202020202020202020202"
            "100000000000000003030303030303030303030303030303"
            "100000000000000004040404040404040404040404040404"
            "02000000"
            "0000000000000000" +
                slice + "0200000000000000" + slice +
                "01000000"
                "0200000000000000" +
                slice);
}

TEST(CentreState, DamagedBytesAreRefused) {
  auto bytes = exampleState().toBytes();
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(CentreState::fromBytes(std::span(bytes).first(size)).isOk()) << size;
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(CentreState::fromBytes(bytes).isOk());
  for (size_t at = 0; at < bytes.size(); ++at) {  // whatever it says, nothing breaks
    auto other = exampleState().toBytes();
    if (at < other.size()) other[at] ^= std::byte{0xff};
    (void)CentreState::fromBytes(other);
  }
}

TEST(CentreState, WhatDoesNotFitIsRefusedInOneLine) {
  const CentreState state = exampleState();
  const auto& sgd = *optimizer::parseOptimizerSpec("sgd").value().optimizer;
  const auto& adam = *optimizer::parseOptimizerSpec("adam").value().optimizer;
  const auto w = [](uint64_t elements) { return Tensor{"w", elements, DType::kF32}; };
  EXPECT_TRUE(state.check(planOf({w(4)}, 2), sgd).isOk());
  EXPECT_NE(state.check(planOf({w(4)}, 2), adam).message().find("belongs to sgd"),
            std::string::npos);
  EXPECT_NE(state.check(planOf({w(4)}, 4), sgd).message().find("other slices"), std::string::npos);
  EXPECT_NE(state.check(planOf({w(6)}, 2), sgd).message().find("another model"), std::string::npos);
  EXPECT_NE(state.check(planOf({{"v", 4, DType::kF32}}, 2), sgd).message().find("another model"),
            std::string::npos);
  EXPECT_NE(
      state.check(planOf({w(4), {"v", 4, DType::kF32}}, 2), sgd).message().find("another model"),
      std::string::npos);
}

// A job that can be saved, and goes on from what was.
class SavedJob final {
 public:
  SavedJob(std::string_view algorithm, std::string_view servers, uint32_t world,
           std::string_view update, const base::Config& config)
      : world_(algorithm, servers, world, {{"a", 400, DType::kF32}, {"b", 3, DType::kF32}}, update,
               /*updatesWaitForWord=*/false, config),
        random_(7) {}

  uint32_t workers() const { return static_cast<uint32_t>(world_.plan().roles().workers.size()); }
  SteppedRank& rank(uint32_t r) { return *world_.ranks()[r]; }

  // Workers one after the other, so that both jobs of a test do the same.
  void step(uint64_t number) {
    for (uint32_t worker = 0; worker < workers(); ++worker) {
      for (const uint32_t t : {1U, 0U}) {
        std::mt19937 numbers(static_cast<uint32_t>(1 + worker + 10 * t + 100 * number));
        std::vector<float> gradient(world_.plan().model().tensors[t].elements);
        for (float& g : gradient) g = static_cast<float>(numbers() % 1000) / 64 - 7;
        rank(worker).gradientReady(TensorId{t}, std::as_bytes(std::span(gradient)));
      }
      if (!waitsForAll_) drain();
    }
    drain();
  }
  void waitForAll() { waitsForAll_ = true; }
  void drain() { runShuffled(world_.ranks(), random_); }

  std::vector<std::byte> save(uint32_t r) {
    bool isPrepared = false;
    rank(r).loop().post([&, r] {
      rank(r).strategy().whenIdle([&, r](const Status& idle) {
        EXPECT_TRUE(idle.isOk());
        rank(r).strategy().checkpoint().prepare([&](const Status& status) {
          EXPECT_TRUE(status.isOk()) << status.toString();
          isPrepared = true;
        });
      });
    });
    drain();
    EXPECT_TRUE(isPrepared);
    std::vector<std::byte> bytes;
    rank(r).loop().post([&, r] { bytes = rank(r).strategy().checkpoint().take().value(); });
    drain();
    return bytes;
  }
  void restore(uint32_t r, const std::vector<std::byte>& bytes) {
    rank(r).loop().post([&, r] {
      const Status status = rank(r).strategy().checkpoint().restore(bytes);
      EXPECT_TRUE(status.isOk()) << status.toString();
    });
    drain();
  }
  void expectEqual(SavedJob& other) {
    for (uint32_t worker = 0; worker < workers(); ++worker) {
      for (const uint32_t t : {0U, 1U}) {
        ASSERT_TRUE(rank(worker).gates().isOpen(TensorId{t}));
        ASSERT_TRUE(std::ranges::equal(rank(worker).result(TensorId{t}),
                                       other.rank(worker).result(TensorId{t})))
            << "worker " << worker;
      }
    }
  }
  SteppedWorld& world() { return world_; }

 private:
  SteppedWorld world_;
  std::mt19937 random_;
  bool waitsForAll_ = false;
};

struct Resumed {
  std::string_view algorithm;
  std::string_view update;
  bool isDgc = false;
  bool keepsStep = false;
  const char* momentumAt = "server";
};

TEST(Checkpoint, TrainingGoesOnAsIfItHadNotStopped) {
  for (const Resumed& c :
       {Resumed{"asp", "adam:lr=0.01"}, Resumed{"asp", "sgd:lr=0.1,momentum=0.9"},
        Resumed{"easgd:2", "sgd:lr=0.1,momentum=0.9"}, Resumed{"easgd:3", "adamw:lr=0.01"},
        Resumed{"asp", "sgd:lr=0.1,momentum=0.9,weight_decay=0.01", false, false, "workers"},
        Resumed{"asp", "sgd:lr=0.1,momentum=0.9", true},
        Resumed{"sluice", "sgd:lr=0.1,momentum=0.9", true, true},
        Resumed{"allreduce", "sgd:lr=0.1,momentum=0.9", true, true}}) {
    for (const char* servers : {"all", "dedicated:1"}) {
      if (c.algorithm == "allreduce" && std::string_view(servers) != "all") continue;
      SCOPED_TRACE(fmt::format("{} {} dgc {} servers {}", c.algorithm, c.update, c.isDgc, servers));
      base::Config config;
      ASSERT_TRUE(config.set(option::kMomentumAt, c.momentumAt).isOk());
      if (c.isDgc) {
        ASSERT_TRUE(config.set(option::kDgc, "on").isOk());
        ASSERT_TRUE(config.set(option::kDgcSparsity, "0.95").isOk());
        ASSERT_TRUE(config.set(option::kDgcWarmUp, "3").isOk());
        ASSERT_TRUE(config.set(option::kSliceElements, "150").isOk());
      }
      SavedJob first(c.algorithm, servers, 3, c.update, config);
      SavedJob second(c.algorithm, servers, 3, c.update, config);
      if (c.keepsStep) {
        first.waitForAll();
        second.waitForAll();
      }
      for (uint64_t step = 0; step < 6; ++step) first.step(step);
      std::vector<std::vector<std::byte>> saved;
      for (uint32_t r = 0; r < 3; ++r) saved.push_back(first.save(r));
      // A rank that only serves has nothing to save: any other's checkpoint has its part.
      for (uint32_t r = 0; r < 3; ++r) {
        second.restore(r, saved[r].empty() ? saved[0] : saved[r]);
        if (!c.keepsStep || r >= second.workers()) continue;
        for (const uint32_t t : {0U, 1U}) {  // parameters are the caller's to save
          const auto from = first.rank(r).result(TensorId{t});
          std::memcpy(second.rank(r).place(TensorId{t}).data(), from.data(), from.size());
        }
      }
      second.expectEqual(first);
      for (uint64_t step = 6; step < 14; ++step) {
        first.step(step);
        second.step(step);
        second.expectEqual(first);
      }
    }
  }
}

TEST(Checkpoint, IsTheServersModel) {
  for (const bool isDgc : {false, true}) {
    base::Config config;
    ASSERT_TRUE(config.set(option::kDgc, isDgc ? "on" : "off").isOk());
    SavedJob job("ssp:3", "all", 3, "sgd:lr=0.1", config);
    for (uint64_t step = 0; step < 6; ++step) job.step(step);
    const auto fromRank0 = CentreState::fromBytes(job.save(0)).value();
    const auto fromRank2 = CentreState::fromBytes(job.save(2)).value();
    for (const uint32_t t : {0U, 1U}) {
      EXPECT_EQ(fromRank0.tensors[t].centre, fromRank2.tensors[t].centre);  // whoever saves
      for (const uint32_t r : {0U, 2U})
        EXPECT_TRUE(
            std::ranges::equal(job.rank(r).result(TensorId{t}), fromRank0.tensors[t].centre));
    }
    // One rank's is enough for all.
    SavedJob other("ssp:3", "all", 3, "sgd:lr=0.1", config);
    const auto bytes = fromRank0.toBytes();
    for (uint32_t r = 0; r < 3; ++r) other.restore(r, bytes);
    for (uint32_t r = 0; r < 3; ++r)
      EXPECT_TRUE(
          std::ranges::equal(other.rank(r).result(TensorId{0}), fromRank0.tensors[0].centre));
    for (uint64_t step = 6; step < 20; ++step) {
      other.step(step);
      for (uint32_t r = 0; r < 3; ++r) ASSERT_TRUE(other.rank(r).gates().isOpen(TensorId{0}));
    }
  }
}

TEST(Checkpoint, OfAnotherAlgorithmIsRefused) {
  SavedJob job("asp", "all", 2, "sgd:lr=0.1", {});
  job.step(0);
  job.rank(0).loop().post([&] {
    const std::vector<std::byte> nonsense(100, std::byte{1});
    EXPECT_EQ(job.rank(0).strategy().checkpoint().restore(nonsense).code(), Code::kDataLoss);
  });
  job.drain();
}

TEST(Checkpoint, AServersAnswerIsTakenOnceAndOnlyIfAskedFor) {
  SavedJob job("asp", "all", 2, "sgd:lr=0.1", {});
  const auto& slices = job.world().plan().slices();
  const plan::Slice& slice = *std::ranges::find(slices, Rank{1}, &plan::Slice::server);
  const auto isTaken = [&](uint64_t bytes) {
    const wire::Header header{.source = Rank{1},
                              .tensor = slice.tensor,
                              .slice = slice.id,
                              .stage = Stage::kPush,
                              .flags = wire::Flags{0x0800},  // tells what a server holds
                              .length = bytes};
    return job.rank(0).strategy().onMessage(Rank{1}, fabric::Lane::kBulk, header).isOk();
  };
  const uint64_t longest = longestHeldSlice(slice.count);
  job.rank(0).loop().post([&] {
    EXPECT_FALSE(isTaken(longest));
    job.rank(0).strategy().checkpoint().prepare(
        [](const Status& status) { EXPECT_FALSE(status.isOk()); });
    EXPECT_FALSE(isTaken(longest + 1));
    EXPECT_TRUE(isTaken(longest));
    EXPECT_FALSE(isTaken(longest));
  });
  job.rank(0).loop().runReady();
}

}  // namespace
}  // namespace sluice::algorithms
