// A promise of docs/add-an-algorithm.md: an algorithm is one file. This is one, of the other kind:
// not a variation of the synchronous server but a Strategy of its own. Every worker sends its
// gradient to every other, and each sums for itself.
#include <map>

#include <gtest/gtest.h>

#include <sluice/algorithms/testing/stepped_world.h>
#include <sluice/data/kernel/reduce.h>

namespace sluice::algorithms {
namespace {

class Everybody final : public Strategy {
 public:
  explicit Everybody(const Context& context) : context_(context) {}

  void contribute(const Contribution& contribution) override {
    const auto [tensor, step, hasGradient] = contribution;
    // A copy, since the sum may take the gradient's place before the slowest rank has got it.
    const auto gradient = context_.memory[index(tensor)].gradient;
    const auto copy = std::make_shared<std::vector<std::byte>>(gradient.size());
    if (hasGradient) std::ranges::copy(gradient, copy->begin());
    for (const Rank to : context_.plan.roles().workers) {
      const fabric::Message message{
          .step = step, .tensor = tensor, .stage = Stage::kPush, .dtype = DType::kF32};
      context_.fabric.send(to, fabric::Lane::kBulk, message, {copy->data(), copy->size()},
                           [copy](const Status&) {});
    }
  }

  Result<fabric::Landing> onMessage(Rank from, fabric::Lane, const wire::Header& header) override {
    auto& part = parts_[header.tensor][from];
    part.resize(header.length);
    return fabric::Landing{{part.data(), part.size()},
                           [this, header](const Status&) { sumIfComplete(header); }};
  }

  Status setHyperparameters(const std::vector<double>&, Step) override { return base::ok(); }
  std::string describeWait(TensorId) const override { return "somebody's gradient"; }

 private:
  void sumIfComplete(const wire::Header& header) {
    auto& parts = parts_[header.tensor];
    if (++arrived_[header.tensor] < context_.plan.roles().workers.size()) return;
    std::vector<std::span<const std::byte>> inRankOrder;
    for (const auto& [rank, part] : parts) inRankOrder.emplace_back(part);
    kernel::sumInRankOrder(DType::kF32, context_.memory[index(header.tensor)].result, inRankOrder,
                           kernel::meanScale(parts.size()));
    arrived_[header.tensor] = 0;
    for (const plan::Slice& slice : context_.plan.slicesOf(header.tensor))
      context_.resultIsHere(slice, header.step, context_.fabric.rank());
    context_.gates.open(header.tensor, header.step);
  }

  const Context context_;
  std::map<TensorId, std::map<Rank, std::vector<std::byte>>> parts_;
  std::map<TensorId, size_t> arrived_;
};

const Algorithm kEverybody{
    .name = "everybody",
    .help = "each sends to all",
    .choose = [](const base::Config&, plan::PlanSpec&) { return base::ok(); },
    .make = [](const Context& context) -> Result<std::unique_ptr<Strategy>> {
      return std::unique_ptr<Strategy>(std::make_unique<Everybody>(context));
    }};

TEST(ToyAlgorithm, IsOneFileAndTrains) {
  plan::PlanSpec spec;
  spec.model.tensors = {{"w", 4, DType::kF32}};
  spec.roles = plan::parseRoles("all", 4).value();
  spec.strategy = kEverybody.name;
  const plan::Plan plan = plan::Plan::make(spec).value();
  const auto update = optimizer::parseOptimizerSpec("mean-gradient").value();
  fabric::LoopbackHub hub(4);
  const base::Config config;
  std::vector<std::unique_ptr<SteppedRank>> ranks;
  for (uint32_t r = 0; r < 4; ++r) {
    ranks.push_back(std::make_unique<SteppedRank>(
        plan, Rank{r}, update, std::vector<std::vector<std::byte>>(1), config, hub, kEverybody));
  }
  std::mt19937 random(1);
  for (uint32_t r = 0; r < 4; ++r) {
    const std::vector<float> gradient(4, static_cast<float>(2 * r));
    ranks[r]->gradientReady(TensorId{0}, std::as_bytes(std::span(gradient)));
  }
  runShuffled(ranks, random);
  const std::vector<float> mean(4, 3);  // of 0, 2, 4 and 6
  for (const auto& rank : ranks) {
    ASSERT_TRUE(rank->gates().isOpen(TensorId{0}));
    EXPECT_TRUE(std::ranges::equal(rank->result(TensorId{0}), std::as_bytes(std::span(mean))));
  }
}

}  // namespace
}  // namespace sluice::algorithms
