// A job of N ranks in one thread: every rank has a loop that the test steps, so that any
// interleaving of arrivals can be played and repeated. Tests only.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include <sluice/algorithms/catalogue/registry.h>
#include <sluice/base/check.h>
#include <sluice/base/options.h>
#include <sluice/base/testing/manual_loop.h>
#include <sluice/transport/fabric/loopback/loopback_fabric.h>

namespace sluice::algorithms {

// REQUIRES: there is an algorithm of that name.
inline const Algorithm& algorithmNamed(std::string_view name) {
  return *findAlgorithm(name).value();
}

// One rank: its memory, its gates and its strategy.
class SteppedRank final : public fabric::Receiver {
 public:
  SteppedRank(const plan::Plan& plan, Rank rank, const optimizer::OptimizerSpec& update,
              std::vector<std::vector<std::byte>> parameters, const base::Config& config,
              fabric::LoopbackHub& hub, const Algorithm& algorithm, bool updatesWaitForWord = false,
              StageObserver* observer = nullptr)
      : parameters_(std::move(parameters)), isWorker_(plan.roles().isWorker(rank)) {
    std::vector<std::string> names;
    std::vector<std::span<const std::byte>> first;
    const bool inPlace = update.optimizer->publishes() == optimizer::Publishes::kMeanGradient;
    for (const auto& tensor : plan.model().tensors) {
      names.push_back(tensor.name);
      gradients_.emplace_back(tensor.bytes());
    }
    for (size_t t = 0; t < names.size(); ++t) {
      first.emplace_back(parameters_[t]);
      if (isWorker_) memory_.push_back({gradients_[t], inPlace ? gradients_[t] : parameters_[t]});
    }
    gates_ = std::make_unique<gate::Gates>(std::move(names), gate::WaitOptions{}, [](auto...) {});
    fabric_ = hub.join(rank, loop_, *this);
    strategy_ = algorithm
                    .make({.plan = plan,
                           .fabric = *fabric_,
                           .gates = *gates_,
                           .memory = memory_,
                           .update = update,
                           .parameters = first,
                           .config = config,
                           .observer = observer,
                           .updatesWaitForWord = updatesWaitForWord})
                    .value();
  }
  ~SteppedRank() override {
    loop_.post([this] { fabric_.reset(); });
    loop_.runReady();
  }

  void gradientReady(TensorId tensor, std::span<const std::byte> gradient) {
    std::ranges::copy(gradient, gradients_[index(tensor)].begin());
    const Step step = gates_->close(tensor).value();
    loop_.post(
        [this, tensor, step] { strategy_->contribute({tensor, step, /*hasGradient=*/true}); });
  }

  bool isWorker() const { return isWorker_; }
  base::ManualLoop& loop() { return loop_; }
  gate::Gates& gates() { return *gates_; }
  Strategy& strategy() { return *strategy_; }
  fabric::Fabric& fabric() { return *fabric_; }
  std::span<const std::byte> result(TensorId tensor) const { return memory_[index(tensor)].result; }
  std::span<std::byte> place(TensorId tensor) { return memory_[index(tensor)].result; }

  // Hears of every message as it comes.
  void listen(std::function<void(const wire::Header&)> listener) {
    listener_ = std::move(listener);
  }

  Result<fabric::Landing> onMessage(Rank from, fabric::Lane lane,
                                    const wire::Header& header) override {
    if (listener_) listener_(header);
    return strategy_->onMessage(from, lane, header);
  }
  void onPeerLost(Rank, const Status& why) override { gates_->fail(why); }
  void onPeerLeft(Rank) override {}

 private:
  std::vector<std::vector<std::byte>> gradients_;
  std::vector<std::vector<std::byte>> parameters_;
  const bool isWorker_;
  std::function<void(const wire::Header&)> listener_;
  std::vector<TensorMemory> memory_;
  base::ManualLoop loop_;
  std::unique_ptr<gate::Gates> gates_;
  std::unique_ptr<Strategy> strategy_;
  std::unique_ptr<fabric::Fabric> fabric_;
};

// Ranks of one algorithm whose servers run `update`, from parameters that are all zero unless
// others are given; slices of three elements, unless `config` says otherwise.
class SteppedWorld final {
 public:
  // `algorithmText` as a user writes it: "ssp:3".
  SteppedWorld(std::string_view algorithmText, std::string_view servers, uint32_t world,
               std::vector<Tensor> tensors, std::string_view update,
               bool updatesWaitForWord = false, base::Config config = {},
               std::vector<std::vector<std::byte>> parameters = {},
               StageObserver* observer = nullptr)
      : config_(std::move(config)),
        update_(optimizer::parseOptimizerSpec(update).value()),
        hub_(world) {
    if (config_.integer(option::kSliceElements) == 0)
      SLUICE_CHECK(config_.set(option::kSliceElements, "3").isOk());
    const Algorithm& algorithm = *readAlgorithm(algorithmText, config_).value();
    plan::PlanSpec spec;
    spec.model.tensors = std::move(tensors);
    spec.roles = plan::parseRoles(servers, world).value();
    spec.strategy = algorithm.name;
    SLUICE_CHECK(algorithm.choose(config_, spec).isOk());
    plan_ = std::make_unique<plan::Plan>(plan::Plan::make(std::move(spec)).value());
    if (parameters.empty()) {
      for (const auto& tensor : plan_->model().tensors) parameters.emplace_back(tensor.bytes());
    }
    for (uint32_t r = 0; r < world; ++r) {
      ranks_.push_back(std::make_unique<SteppedRank>(*plan_, Rank{r}, update_, parameters, config_,
                                                     hub_, algorithm, updatesWaitForWord,
                                                     observer));
    }
  }

  const plan::Plan& plan() const { return *plan_; }
  const optimizer::OptimizerSpec& update() const { return update_; }
  std::vector<std::unique_ptr<SteppedRank>>& ranks() { return ranks_; }

 private:
  base::Config config_;
  const optimizer::OptimizerSpec update_;
  std::unique_ptr<plan::Plan> plan_;
  fabric::LoopbackHub hub_;
  std::vector<std::unique_ptr<SteppedRank>> ranks_;
};

// Returns the reason that the algorithm is not made, in a job of one rank; empty: it is made.
inline std::string refusalOf(const Algorithm& algorithm, plan::PlanSpec spec,
                             std::string_view update, const base::Config& config) {
  struct Nobody final : fabric::Receiver {
    Result<fabric::Landing> onMessage(Rank, fabric::Lane, const wire::Header&) override {
      return Status(Code::kRefused, "nobody");
    }
    void onPeerLost(Rank, const Status&) override {}
    void onPeerLeft(Rank) override {}
  } nobody;
  spec.strategy = algorithm.name;
  EXPECT_TRUE(algorithm.choose(config, spec).isOk());
  const auto plan = plan::Plan::make(std::move(spec)).value();
  fabric::LoopbackHub hub(1);
  base::ManualLoop loop;
  gate::Gates gates(std::vector<std::string>(plan.model().tensors.size(), "tensor"), {},
                    [](auto...) {});
  auto fabric = hub.join(Rank{0}, loop, nobody);
  const Status status = algorithm
                            .make({.plan = plan,
                                   .fabric = *fabric,
                                   .gates = gates,
                                   .memory = {},
                                   .update = optimizer::parseOptimizerSpec(update).value(),
                                   .parameters = {},
                                   .config = config,
                                   .observer = nullptr})
                            .status();
  loop.post([&] { fabric.reset(); });
  loop.runReady();
  EXPECT_TRUE(status.isOk() || status.code() == Code::kInvalidArgument) << status.toString();
  return status.message();
}

// Steps the loops in random order until nothing is left to run.
inline void runShuffled(std::vector<std::unique_ptr<SteppedRank>>& ranks, std::mt19937& random) {
  std::vector<SteppedRank*> order;
  for (const auto& rank : ranks) order.push_back(rank.get());
  bool ran = true;
  while (ran) {
    std::ranges::shuffle(order, random);
    ran = false;
    for (SteppedRank* rank : order) ran = rank->loop().runOne() || ran;
  }
}

}  // namespace sluice::algorithms
