#include <sluice/data/timing/drift.h>

#include <gtest/gtest.h>

namespace sluice::timing {
namespace {

// Three layers that compute for 1, 2 and 3 ms in backward, half of it in forward.
Costs knownCosts() {
  return {.layers = {{.forward = 0.5e-3, .backward = 1e-3, .bytes = 1'000},
                     {.forward = 1e-3, .backward = 2e-3, .bytes = 100'000},
                     {.forward = 1.5e-3, .backward = 3e-3, .bytes = 2'000}},
          .wire = {.start = 1e-4, .perByte = 1e-8}};
}

const std::vector<Group> kEach{{0, 0}, {1, 1}, {2, 2}};

TEST(Drift, TheSlowestRankMakesALayerReadyAndTheLastShowsWhatAReductionCosts) {
  const std::vector<StepTimes> ranks{{{3, 2, 0}, {5, 1, 4}}, {{1, 4, 0}, {2, 3, 4}}};
  EXPECT_EQ(combine(ranks), (StepTimes{{3, 4, 0}, {2, 1, 4}}));
}

TEST(Drift, WhatWasMeasuredTakesThePlaceOfWhatWasKnown) {
  const auto layers = correct(knownCosts(), {{6e-3, 4e-3, 0}, {0, 0, 0}}, kEach).layers;
  EXPECT_NEAR(layers[0].backward, 2e-3, 1e-12);
  EXPECT_NEAR(layers[1].backward, 4e-3, 1e-12);
  EXPECT_NEAR(layers[2].backward, 6e-3, 1e-12);  // not seen: twice as long, as the others
  EXPECT_NEAR(layers[1].forward, 2e-3, 1e-12);
  EXPECT_EQ(layers[1].bytes, 100'000);
}

TEST(Drift, ALayerIsNoSoonerOfUseThanThoseBehindIt) {
  const auto layers = correct(knownCosts(), {{1e-3, 6e-3, 0}, {0, 0, 0}}, kEach).layers;
  EXPECT_EQ(layers[0].backward, 0);
  EXPECT_NEAR(layers[1].backward, 6e-3, 1e-12);
}

TEST(Drift, NothingMeasuredChangesNothing) {
  const Costs costs = correct(knownCosts(), {{0, 0, 0}, {0, 0, 0}}, kEach);
  EXPECT_EQ(costs.wire.start, 1e-4);
  EXPECT_EQ(costs.wire.perByte, 1e-8);
  for (size_t l = 0; l < 3; ++l)
    EXPECT_EQ(costs.layers[l].backward, knownCosts().layers[l].backward);
}

TEST(Drift, DifferentSizesShowBothStartAndRate) {
  const auto cost = [](double bytes) { return 3e-4 + 5e-8 * bytes; };
  const StepTimes measured{{0, 0, 0}, {cost(1'000), cost(100'000), cost(2'000)}};
  const WireCost wire = correct(knownCosts(), measured, kEach).wire;
  EXPECT_NEAR(wire.start, 3e-4, 1e-9);
  EXPECT_NEAR(wire.perByte, 5e-8, 1e-13);
}

// Messages of one size do not show how their time divides into start and bytes, and a line that
// falls, or begins below zero, is of no use: the known costs are stretched instead.
TEST(Drift, TimesThatShowNoLineStretchTheOneThatWasKnown) {
  const WireCost known = knownCosts().wire;
  const std::vector<Group> one{{0, 2}};
  const WireCost ofOne = correct(knownCosts(), {{0, 0, 0}, {2 * known.of(103'000)}}, one).wire;
  EXPECT_NEAR(ofOne.start, 2e-4, 1e-9);
  EXPECT_NEAR(ofOne.perByte, 2e-8, 1e-13);
  const std::vector<double> falling{3e-3, 1e-3, 3e-3};
  const std::vector<double> belowZero{0.5e-5, 99.5e-5, 1.5e-5};
  for (const auto& reduced : {falling, belowZero}) {
    const WireCost wire = correct(knownCosts(), {{0, 0, 0}, reduced}, kEach).wire;
    EXPECT_GT(wire.start, 0);
    EXPECT_NEAR(wire.perByte / wire.start, known.perByte / known.start, 1e-12);
  }
}

// Corrections are kept: layers and messages that show no line later begin from the corrected costs.
TEST(Drift, CorrectsWhatWasCorrected) {
  const auto cost = [](double bytes) { return 3e-4 + 5e-8 * bytes; };
  const Costs learned =
      correct(knownCosts(), {{6e-3, 4e-3, 0}, {cost(1'000), cost(100'000), cost(2'000)}}, kEach);
  const Costs later =
      correct(learned, {{3e-3, 2e-3, 0}, {cost(103'000)}}, std::vector<Group>{{0, 2}});
  EXPECT_NEAR(later.wire.start, 3e-4, 1e-9);
  EXPECT_NEAR(later.wire.perByte, 5e-8, 1e-13);
  EXPECT_NEAR(later.layers[2].backward, 3e-3, 1e-12);  // twice as fast again
  EXPECT_NEAR(later.layers[0].forward, 0.5e-3, 1e-12);
}

}  // namespace
}  // namespace sluice::timing
