// The promises of deep gradient compression over servers: bsp has the bits of the sparse
// all-gather, asp those of a scripted reference; nothing is lost on the way; and little is sent.
#include <sluice/algorithms/dgc/summing_server.h>

#include <cstring>
#include <map>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sluice/algorithms/dgc/dgc_options.h>
#include <sluice/algorithms/testing/stepped_world.h>
#include <sluice/base/testing/short_tests.h>
#include <sluice/data/codec/dgc.h>
#include <sluice/data/codec/sparse.h>
#include <sluice/data/kernel/element.h>
#include <sluice/data/timing/profile.h>

namespace sluice::algorithms {
namespace {

using Floats = std::vector<float>;

base::Config dgcConfig(std::string_view sparsity, std::string_view sliceElements = "1000000") {
  base::Config config;
  SLUICE_CHECK(config.set(option::kDgc, "on").isOk());
  SLUICE_CHECK(config.set(option::kDgcSparsity, sparsity).isOk());
  SLUICE_CHECK(config.set(option::kSliceElements, sliceElements).isOk());
  return config;
}

std::vector<Tensor> longAndShort() {
  return {{"a", 2000, DType::kF32}, {"b", 3, DType::kF32}};
}

// Whole numbers, so that sums are exact; the same whoever asks again.
Floats wholeGradient(size_t elements, uint32_t worker, uint32_t tensor, uint64_t step) {
  std::mt19937 random(static_cast<uint32_t>(1 + worker + 100 * tensor + 10'000 * step));
  Floats gradient(elements);
  for (float& g : gradient) g = static_cast<float>(random() % 64) - 32;
  return gradient;
}

// With the headers.
uint64_t bytesOnTheWire(SteppedWorld& world) {
  uint64_t bytes = 0;
  for (auto& rank : world.ranks()) {
    const auto counters = rank->fabric().counters();
    bytes += counters.bytesSent + counters.messagesSent * wire::kHeaderBytes;
  }
  return bytes;
}

class SparseServerJob final {
 public:
  SparseServerJob(std::string_view algorithm, std::string_view servers, uint32_t world,
                  std::string_view update, const base::Config& config, bool waits = false)
      : world_(algorithm, servers, world, longAndShort(), update, waits, config), random_(world) {}

  // One step of one worker, by its place among them, and all that comes of it so far.
  void step(uint32_t worker) {
    SteppedRank& rank = rankOf(worker);
    const auto& tensors = world_.plan().model().tensors;
    for (auto t = static_cast<uint32_t>(tensors.size()); t-- > 0;) {
      const Floats gradient = wholeGradient(tensors[t].elements, worker, t, steps_[worker]);
      rank.gradientReady(TensorId{t}, std::as_bytes(std::span(gradient)));
    }
    ++steps_[worker];
  }
  void stepAll() {
    for (uint32_t worker = 0; worker < workers(); ++worker) step(worker);
    drain();
  }
  void drain() { runShuffled(world_.ranks(), random_); }
  void decide(Decision decision) {
    for (auto& rank : world_.ranks())
      rank->loop().post(
          [&rank, decision] { EXPECT_TRUE(rank->strategy().decide(decision).isOk()); });
    drain();
  }

  uint32_t workers() const { return static_cast<uint32_t>(world_.plan().roles().workers.size()); }
  SteppedRank& rankOf(uint32_t worker) {
    return *world_.ranks()[index(world_.plan().roles().workers[worker])];
  }
  bool isReady(uint32_t worker) {
    const size_t tensors = world_.plan().model().tensors.size();
    for (uint32_t t = 0; t < tensors; ++t) {
      if (!rankOf(worker).gates().isOpen(TensorId{t})) return false;
    }
    return true;
  }
  Floats result(uint32_t worker, uint32_t tensor) {
    const auto bytes = rankOf(worker).result(TensorId{tensor});
    Floats values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  SteppedWorld& world() { return world_; }
  const plan::Plan& plan() const { return world_.plan(); }
  std::mt19937& random() { return random_; }

 private:
  SteppedWorld world_;
  std::mt19937 random_;
  std::map<uint32_t, uint64_t> steps_;
};

constexpr const char* kWithMomentum = "sgd:lr=0.125,momentum=0.9,weight_decay=0.01";

TEST(SparseServer, BspHasTheBitsOfTheAllgather) {
  base::Config config = dgcConfig("0.99");
  ASSERT_TRUE(config.set(option::kDgcClip, "100").isOk());
  ASSERT_TRUE(config.set(option::kDgcWarmUp, "2").isOk());
  struct Case {
    const char* servers;
    uint32_t world;
  };
  for (const Case& c : {Case{"all", 4}, Case{"1", 4}, Case{"dedicated:1", 5}}) {
    SCOPED_TRACE(c.servers);
    SparseServerJob reference("allreduce", "all", 4, kWithMomentum, config);
    SparseServerJob job("sluice", c.servers, c.world, kWithMomentum, config);
    for (int step = 0; step < 12; ++step) {
      reference.stepAll();
      job.stepAll();
      for (uint32_t worker = 0; worker < 4; ++worker) {
        ASSERT_TRUE(job.isReady(worker)) << job.rankOf(worker).strategy().describeWait(TensorId{0});
        for (const uint32_t t : {0U, 1U})
          ASSERT_EQ(job.result(worker, t), reference.result(0, t)) << step;
      }
    }
  }
}

TEST(SparseServer, RanksStayEqualHoweverTensorsAreCut) {
  base::Config config = dgcConfig("0.99", "130");
  ASSERT_TRUE(config.set(option::kDgcClip, "100").isOk());
  SparseServerJob job("bsp", "all", 3, kWithMomentum, config);
  EXPECT_GT(job.plan().slicesOf(TensorId{0}).size(), 10U);
  for (int step = 0; step < 12; ++step) {
    job.stepAll();
    for (uint32_t worker = 1; worker < 3; ++worker) {
      ASSERT_TRUE(job.isReady(worker));
      for (const uint32_t t : {0U, 1U}) ASSERT_EQ(job.result(worker, t), job.result(0, t)) << step;
    }
  }
}

// One worker at a time, in any order. The reference is one model, and a Dgc for each worker and
// tensor.
TEST(SparseServer, AspHasTheBitsOfAScriptedReferenceAndNothingIsLost) {
  for (const char* servers : {"all", "dedicated:1"}) {
    SCOPED_TRACE(servers);
    SparseServerJob job("asp", servers, 4, "sgd:lr=1", dgcConfig("0.99"));
    const auto& tensors = job.plan().model().tensors;
    std::vector<Floats> server;
    std::vector<Floats> total;  // of all gradients
    for (const auto& tensor : tensors) {
      server.emplace_back(tensor.elements);
      total.emplace_back(tensor.elements);
    }
    std::map<std::pair<uint32_t, uint32_t>, codec::Dgc> dgcs;
    std::map<uint32_t, uint64_t> steps;
    for (int event = 0; event < 60; ++event) {
      const auto worker = static_cast<uint32_t>(job.random()() % job.workers());
      for (uint32_t t = 0; t < tensors.size(); ++t) {
        const Floats gradient = wholeGradient(tensors[t].elements, worker, t, steps[worker]);
        auto& dgc =
            dgcs.try_emplace({worker, t}, tensors[t].elements, codec::DgcOptions{.momentum = 0})
                .first->second;
        const auto part =
            codec::decodeSparse(dgc.compress(gradient, 0.99), gradient.size()).value();
        codec::addScaledSparse(part, -1, std::as_writable_bytes(std::span(server[t])));
        for (size_t i = 0; i < gradient.size(); ++i) total[t][i] += gradient[i];
      }
      ++steps[worker];
      job.step(worker);
      job.drain();
      ASSERT_TRUE(job.isReady(worker));
      for (uint32_t t = 0; t < tensors.size(); ++t)
        ASSERT_EQ(job.result(worker, t), server[t]) << event;
    }
    for (uint32_t t = 0; t < tensors.size(); ++t) {
      Floats kept(tensors[t].elements);
      for (const auto& [whose, dgc] : dgcs) {
        if (whose.second != t) continue;
        for (size_t i = 0; i < kept.size(); ++i) kept[i] += dgc.residual()[i];
      }
      for (size_t i = 0; i < kept.size(); ++i)
        ASSERT_EQ(kept[i] - server[t][i], total[t][i]) << t << " " << i;
    }
  }
}

TEST(SparseServer, AWorkersOwnStepsAreTheServers) {
  SparseServerJob often("asp", "dedicated:1", 2, kWithMomentum, dgcConfig("0.99", "130"));
  SparseServerJob seldom("ssp:3", "dedicated:1", 2, kWithMomentum, dgcConfig("0.99", "130"));
  for (int step = 0; step < 20; ++step) {
    often.stepAll();
    seldom.stepAll();
    ASSERT_TRUE(seldom.isReady(0));
    for (const uint32_t t : {0U, 1U}) ASSERT_EQ(seldom.result(0, t), often.result(0, t)) << step;
  }
  EXPECT_LT(bytesOnTheWire(seldom.world()), bytesOnTheWire(often.world()));
}

TEST(SparseServer, WithoutStalenessAllReadTheSame) {
  SparseServerJob job("ssp:0", "all", 4, kWithMomentum, dgcConfig("0.99", "130"));
  for (int step = 0; step < 10; ++step) {
    job.stepAll();
    for (uint32_t worker = 0; worker < 4; ++worker) {
      ASSERT_TRUE(job.isReady(worker));
      ASSERT_EQ(job.result(worker, 0), job.result(0, 0)) << step;
    }
  }
}

TEST(SparseServer, ADroppedStepWasNever) {
  for (const char* algorithm : {"sluice", "asp", "ssp:2"}) {
    SCOPED_TRACE(algorithm);
    SparseServerJob job(algorithm, "all", 2, "sgd:lr=1", dgcConfig("0.9"), /*waits=*/true);
    job.stepAll();
    EXPECT_FALSE(job.isReady(0));
    job.decide(Decision::kUpdate);
    ASSERT_TRUE(job.isReady(0) && job.isReady(1));
    const Floats after = job.result(0, 0);
    EXPECT_NE(after, Floats(after.size()));
    job.stepAll();
    job.decide(Decision::kDrop);
    ASSERT_TRUE(job.isReady(0));
    EXPECT_TRUE(job.rankOf(0).gates().isEmpty(TensorId{0}));
    EXPECT_EQ(job.result(0, 0), after);
    job.stepAll();
    job.decide(Decision::kUpdate);
    ASSERT_TRUE(job.isReady(0) && job.isReady(1));
    EXPECT_NE(job.result(0, 0), after);
  }
}

TEST(SparseServer, AWorkerWithoutAGradientHoldsNobodyUp) {
  for (const char* algorithm : {"sluice", "asp", "ssp:1"}) {
    SCOPED_TRACE(algorithm);
    SparseServerJob job(algorithm, "all", 2, "sgd:lr=1,momentum=0.9", dgcConfig("0.9"));
    for (int step = 0; step < 6; ++step) {
      job.step(0);
      for (const uint32_t t : {1U, 0U}) {
        SteppedRank& rank = job.rankOf(1);
        const Step closed = rank.gates().close(TensorId{t}).value();
        rank.loop().post([&rank, t, closed] {
          rank.strategy().contribute({TensorId{t}, closed, /*hasGradient=*/false});
        });
      }
      job.drain();
      ASSERT_TRUE(job.isReady(0) && job.isReady(1)) << step;
    }
  }
}

// Few large ones, many small ones, as gradients are.
Floats likeAGradient(size_t elements, uint32_t seed) {
  uint32_t state = seed * 0x9e3779b9U + 1;
  Floats gradient(elements);
  for (float& g : gradient) {
    state = state * 1664525U + 1013904223U;
    const float u = static_cast<float>(state >> 8U) / static_cast<float>(1U << 23U) - 1;
    g = u * u * u * u * u;
  }
  return gradient;
}

// All bytes of one step of four workers with one tensor: push and return with their headers, and a
// server besides, so that everything is on the wire.
uint64_t bytesOfOneStep(std::string_view algorithm, uint64_t elements) {
  SteppedWorld world(algorithm, "dedicated:1", 5, {{"w", elements, DType::kF32}},
                     "sgd:lr=0.1,momentum=0.9",
                     /*updatesWaitForWord=*/false, dgcConfig("0.999", "1048576"));
  std::mt19937 random(1);
  uint64_t before = 0;
  for (const uint32_t step : {0U, 1U}) {  // asp's first answers are shorter
    before = bytesOnTheWire(world);
    for (uint32_t worker = 0; worker < 4; ++worker) {
      const Floats gradient = likeAGradient(elements, 1 + worker + 4 * step);
      world.ranks()[worker]->gradientReady(TensorId{0}, std::as_bytes(std::span(gradient)));
    }
    runShuffled(world.ranks(), random);
    EXPECT_TRUE(world.ranks()[0]->gates().isOpen(TensorId{0}));
  }
  return bytesOnTheWire(world) - before;
}

// Tensors of one size cost the same.
TEST(SparseServer, ResNet50TakesLessThanATwoHundredthOfDense) {
  std::map<uint64_t, uint32_t> timesBySize;
  const auto model = timing::findProfile("resnet50").value().toModel();
  for (const auto& tensor : model.tensors) ++timesBySize[tensor.elements];
  if (base::testsAreShort()) {
    std::erase_if(timesBySize, [n = 0](const auto&) mutable { return n++ % 6 != 0; });
  }
  for (const char* algorithm : {"sluice", "asp"}) {
    double dense = 0;
    double sparse = 0;
    for (const auto& [elements, times] : timesBySize) {
      sparse += times * static_cast<double>(bytesOfOneStep(algorithm, elements));
      dense += times * 4 * 2.0 * sizeof(float) * static_cast<double>(elements);
    }
    EXPECT_GT(dense / sparse, 200) << algorithm;
    fmt::print("{}: {:.0f} times less than dense\n", algorithm, dense / sparse);
  }
}

TEST(SparseServer, WhatItCannotDoIsRefusedInOneLine) {
  const base::Config config = dgcConfig("0.99");
  plan::PlanSpec spec;
  spec.model.tensors = longAndShort();
  spec.roles = plan::parseRoles("all", 1).value();
  for (const Algorithm* algorithm :
       {&algorithmNamed("sluice"), &algorithmNamed("asp"), &algorithmNamed("ssp")}) {
    for (const char* update : {"adam", "mean-gradient"})
      EXPECT_NE(refusalOf(*algorithm, spec, update, config).find("give sgd as the update"),
                std::string::npos);
    EXPECT_NE(refusalOf(*algorithm, spec, "sgd:momentum=0.9,nesterov=1", config)
                  .find("leave out nesterov"),
              std::string::npos);
    plan::PlanSpec wide = spec;
    wide.model.tensors = {{"w", 4, DType::kF64}};
    EXPECT_NE(algorithm->choose(config, wide).message().find("not f32"), std::string::npos);
  }
  for (const Algorithm* algorithm :
       {&algorithmNamed("p3"), &algorithmNamed("kvstore"), &algorithmNamed("pipe"),
        &algorithmNamed("easgd"), &algorithmNamed("gosgd"), &algorithmNamed("adpsgd")}) {
    spec.strategy = algorithm->name;
    ASSERT_TRUE(algorithm->choose(config, spec).isOk());
    EXPECT_EQ(
        rejectIgnoredOptions(config, spec).message(),
        fmt::format("{} cannot compress with --dgc; it is for sluice, wfbp, allreduce, asp, ssp",
                    algorithm->name));
  }
}

}  // namespace
}  // namespace sluice::algorithms
