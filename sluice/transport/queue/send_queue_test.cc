#include <sluice/transport/queue/send_queue.h>

#include <tuple>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <sluice/transport/queue/testing/any_send.h>

namespace sluice::queue {
namespace {

std::vector<uint64_t> popAll(SendQueue& queue) {
  std::vector<uint64_t> tags;
  while (!queue.empty()) {
    EXPECT_EQ(queue.topKey().arrival, queue.top().arrival);
    tags.push_back(queue.pop().send.tag);
  }
  return tags;
}

TEST(SendQueue, StepFirstThenLayerThenPushBeforePublishThenTurnThenArrival) {
  const std::vector<Send> inOrder{
      {.priority = 0, .stage = Stage::kPush, .turn = 0},
      {.priority = 0, .stage = Stage::kPush, .turn = 0},
      {.priority = 0, .stage = Stage::kPush, .turn = 4},
      {.priority = 0, .stage = Stage::kPublish, .turn = 1},
      {.priority = 1, .stage = Stage::kPublish, .turn = 0},
      {.priority = 2, .stage = Stage::kPush, .turn = 9},
      // This worker is a step ahead: others still wait for the messages above.
      {.step = Step{1}, .priority = 0, .stage = Stage::kPush, .turn = 0}};
  std::vector<uint64_t> expected;
  SendQueue queue(SendOrder::kPriority);
  for (uint64_t i = 0; i < inOrder.size(); ++i) expected.push_back(i);
  for (const uint64_t i : {6, 5, 3, 0, 4, 2, 1}) {  // the equal ones, 0 and 1, in their order
    Send send = inOrder[i];
    send.tag = i;
    queue.push({send, queue.size(), {}});
  }
  EXPECT_EQ(popAll(queue), expected);
}

RC_GTEST_PROP(SendQueue, PopsAsAStableSortWouldOrder, ()) {
  auto sends = *rc::gen::container<std::vector<Send>>(testing::anySend());
  for (const auto order : {SendOrder::kFifo, SendOrder::kPriority}) {
    SendQueue queue(order);
    for (uint64_t i = 0; i < sends.size(); ++i) {
      sends[i].tag = i;
      queue.push({sends[i], i, {}});
    }
    auto sorted = sends;
    if (order == SendOrder::kPriority) {
      std::ranges::stable_sort(sorted, {}, [](const Send& s) {
        return std::tuple(s.step, s.priority, s.stage, s.turn);
      });
    }
    std::vector<uint64_t> expected;
    std::ranges::transform(sorted, std::back_inserter(expected), &Send::tag);
    RC_ASSERT(popAll(queue) == expected);
  }
}

RC_GTEST_PROP(SendQueue, NeverPopsWhileSomethingMoreUrgentWaits, ()) {
  SendQueue queue(SendOrder::kPriority);
  std::vector<SendKey> waiting;
  uint64_t arrivals = 0;
  const auto steps = *rc::gen::arbitrary<std::vector<bool>>();
  for (const bool push : steps) {
    if (push) {
      const Waiting next{*testing::anySend(), arrivals++, {}};
      queue.push(next);
      waiting.push_back(keyOf(SendOrder::kPriority, next));
    } else if (!queue.empty()) {
      const SendKey popped = keyOf(SendOrder::kPriority, queue.pop());
      RC_ASSERT(popped == std::ranges::min(waiting));
      std::erase(waiting, popped);
    }
    RC_ASSERT(queue.size() == waiting.size());
  }
}

RC_GTEST_PROP(SendQueue, TheOrderIsStrictAndTotal, ()) {
  const auto order = *rc::gen::element(SendOrder::kFifo, SendOrder::kPriority);
  const SendKey a = keyOf(order, {*testing::anySend(), 0, {}});
  const SendKey b = keyOf(order, {*testing::anySend(), 1, {}});
  const SendKey c = keyOf(order, {*testing::anySend(), 2, {}});
  RC_ASSERT((a < b) != (b < a));
  RC_ASSERT(!(a < a));
  if (a < b && b < c) RC_ASSERT(a < c);
}

TEST(Send, PrintsItself) {
  EXPECT_EQ(
      (Send{.to = Rank{3}, .bytes = 200'000, .step = Step{5}, .priority = 2, .turn = 1, .tag = 17})
          .toString(),
      "push of step 5, priority 2 to rank 3, 200000 bytes, turn 1, tag 17");
}

}  // namespace
}  // namespace sluice::queue
