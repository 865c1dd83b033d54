#include <sluice/session/elastic/epoch_history.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::session {
namespace {

membership::EpochView viewOf(uint32_t epoch, std::vector<Rank> ranks) {
  return {.epoch = Epoch{epoch}, .members = std::move(ranks), .self = Rank{0}};
}

std::vector<uint32_t> numbersIn(const EpochHistory& history) {
  std::vector<uint32_t> numbers;
  for (const EpochLog& epoch : history.all(100)) numbers.push_back(index(epoch.view.epoch));
  return numbers;
}

std::optional<uint32_t> agreed(const EpochHistory& history, uint64_t steps) {
  const auto view = history.agreedBy(steps);
  return view ? std::optional(index(view->epoch)) : std::nullopt;
}

TEST(EpochHistory, AnEpochIsAgreedTwoStepsAfterItsLastSliceBegan) {
  EpochHistory history;
  history.add(viewOf(0, {Rank{0}, Rank{1}, Rank{2}}), {Step{0}, Step{0}});
  history.add(viewOf(1, {Rank{0}, Rank{1}}), {Step{3}, Step{4}});
  EXPECT_EQ(agreed(history, 1), std::nullopt);
  EXPECT_EQ(agreed(history, 5), 0U);
  EXPECT_EQ(agreed(history, 6), 1U);
}

// One member has begun epoch 2, another has gone from 1 to 3. They must tell the same story.
TEST(EpochHistory, AnEpochInWhichNothingWasSummedDoesNotCount) {
  EpochHistory one;
  EpochHistory other;
  const std::vector<Step> begun{Step{3}, Step{4}};
  for (EpochHistory* history : {&one, &other}) {
    history->add(viewOf(0, {Rank{0}, Rank{1}, Rank{2}, Rank{3}}), {Step{0}, Step{0}});
    history->add(viewOf(1, {Rank{0}, Rank{1}, Rank{2}}), {Step{1}, Step{1}});
    if (history == &one) history->add(viewOf(2, {Rank{0}, Rank{1}}), begun);
    history->add(viewOf(3, {Rank{0}}), begun);
  }
  EXPECT_THAT(numbersIn(one), testing::ElementsAre(0, 1, 3));
  EXPECT_EQ(numbersIn(one), numbersIn(other));
  for (uint64_t steps = 0; steps < 9; ++steps) EXPECT_EQ(agreed(one, steps), agreed(other, steps));
}

TEST(EpochHistory, TheFirstEpochStaysEvenIfNothingWasSummedInIt) {
  EpochHistory history;
  history.add(viewOf(0, {Rank{0}, Rank{1}}), {Step{0}});
  history.add(viewOf(1, {Rank{0}}), {Step{0}});
  EXPECT_THAT(numbersIn(history), testing::ElementsAre(0, 1));
}

// The last member of the others was lost when all steps were made: some have noticed, others not.
TEST(EpochHistory, AnEpochAfterTheLastStepDoesNotCount) {
  EpochHistory history;
  history.add(viewOf(0, {Rank{0}, Rank{1}, Rank{2}}), {Step{0}, Step{0}});
  history.add(viewOf(1, {Rank{0}, Rank{1}}), {Step{4}, Step{5}});
  history.add(viewOf(2, {Rank{0}}), {Step{6}, Step{6}});
  EXPECT_EQ(history.all(6).size(), 2U);
  EXPECT_EQ(history.all(7).size(), 3U);
  EXPECT_EQ(history.all(0).size(), 1U);
}

}  // namespace
}  // namespace sluice::session
