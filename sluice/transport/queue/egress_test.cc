#include <sluice/transport/queue/egress.h>

#include <algorithm>
#include <chrono>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <sluice/base/cpu_time.h>
#include <sluice/base/testing/manual_clock.h>
#include <sluice/base/testing/short_tests.h>
#include <sluice/transport/queue/testing/any_send.h>

namespace sluice::queue {
namespace {

using std::chrono::milliseconds;

Send to(uint32_t rank, uint64_t bytes, uint32_t priority, uint64_t tag) {
  return {.to = Rank{rank}, .bytes = bytes, .priority = priority, .tag = tag};
}

std::vector<uint64_t> tagsNow(Egress& egress) {
  std::vector<uint64_t> tags;
  while (const auto handed = egress.next()) tags.push_back(handed->send.tag);
  return tags;
}

TEST(Egress, GivesTheMostUrgentWhoseDestinationHasCredit) {
  base::ManualClock clock;
  Egress egress(clock, {.window = 100});
  egress.push(to(0, 100, 5, 50));
  const auto first = egress.next();
  ASSERT_EQ(first->send.tag, 50U);
  egress.push(to(0, 60, 1, 10));
  egress.push(to(1, 60, 3, 30));
  egress.push(to(2, 60, 2, 20));
  egress.push(to(0, 40, 4, 40));
  EXPECT_EQ(tagsNow(egress), (std::vector<uint64_t>{20, 30}));
  egress.done(*first);
  EXPECT_EQ(tagsNow(egress), (std::vector<uint64_t>{10, 40}));
  EXPECT_EQ(egress.waiting(), 0U);
}

TEST(Egress, SmallLessUrgentMessagesDoNotStarveALargeUrgentOne) {
  base::ManualClock clock;
  Egress egress(clock, {.window = 100});
  egress.push(to(0, 50, 0, 1));
  const auto first = egress.next();
  egress.push(to(0, 80, 1, 2));
  egress.push(to(0, 10, 2, 3));
  EXPECT_FALSE(egress.next().has_value());
  egress.done(*first);
  EXPECT_EQ(tagsNow(egress), (std::vector<uint64_t>{2, 3}));
}

TEST(Egress, TheTotalWindowHoldsAllBack) {
  base::ManualClock clock;
  Egress egress(clock, {.totalWindow = 100});
  egress.push(to(0, 90, 0, 1));
  egress.push(to(1, 90, 1, 2));
  egress.push(to(2, 10, 2, 3));
  const auto first = egress.next();
  EXPECT_FALSE(egress.next().has_value());  // 3 would fit, but must not overtake 2
  egress.done(*first);
  EXPECT_EQ(tagsNow(egress), (std::vector<uint64_t>{2, 3}));
}

TEST(Egress, FifoIsFifoOverAllDestinations) {
  base::ManualClock clock;
  Egress egress(clock, {.order = SendOrder::kFifo});
  for (const uint32_t rank : {3, 0, 2, 0, 1}) egress.push(to(rank, 1, 10 - rank, egress.waiting()));
  EXPECT_EQ(tagsNow(egress), (std::vector<uint64_t>{0, 1, 2, 3, 4}));
}

TEST(Egress, DropGivesBackWhatWaitsAndLeavesTheRest) {
  base::ManualClock clock;
  Egress egress(clock, {.window = 10});
  for (uint64_t i = 0; i < 4; ++i) egress.push(to(i % 2, 10, 9 - static_cast<uint32_t>(i), i));
  const auto handed = egress.next();
  ASSERT_EQ(handed->send.tag, 3U);
  const auto dropped = egress.drop(Rank{1});
  ASSERT_EQ(dropped.size(), 1U);
  EXPECT_EQ(dropped[0].tag, 1U);
  egress.done(*handed);
  EXPECT_EQ(egress.waiting(), 2U);
  EXPECT_EQ(egress.next()->send.tag, 2U);
  EXPECT_EQ(egress.credit().inFlightTo(Rank{1}), 0U);
  EXPECT_TRUE(egress.drop(Rank{77}).empty());
}

// A link of one byte per millisecond that sends in the order it was handed messages.
std::vector<Duration> inversionsOf(const EgressOptions& options) {
  base::ManualClock clock;
  Egress egress(clock, options);
  std::vector<Handed> link;
  const auto fill = [&] {
    while (auto handed = egress.next()) link.push_back(*handed);
  };
  for (uint64_t i = 0; i < 10; ++i) egress.push(to(0, 10, 9, i));
  fill();
  clock.advance(milliseconds(5));
  egress.push(to(0, 10, 0, 100));  // urgent, 5 ms after the backlog began to flow
  fill();
  std::vector<Duration> found;
  clock.advance(milliseconds(5));
  while (!link.empty()) {
    const Duration before = egress.inversion().sum();
    const Handed first = link.front();
    link.erase(link.begin());
    egress.done(first);
    if (first.send.tag == 100) found.push_back(egress.inversion().sum() - before);
    fill();
    clock.advance(milliseconds(10));
  }
  found.push_back(egress.inversion().sum());
  EXPECT_EQ(egress.inversion().count(), 11U);
  return found;
}

TEST(Egress, InversionTimeIsWhatTheBytesBeyondRecallCost) {
  using Times = std::vector<Duration>;
  // One message in flight: the urgent one waits for the rest of that one.
  EXPECT_EQ(inversionsOf({.window = 10}), (Times{milliseconds(5), milliseconds(5)}));
  // Three messages in flight: the urgent one waits for all three.
  EXPECT_EQ(inversionsOf({.window = 30}), (Times{milliseconds(25), milliseconds(25)}));
  // No limit, or no priority: the urgent one waits for the whole backlog.
  EXPECT_EQ(inversionsOf({}), (Times{milliseconds(95), milliseconds(95)}));
  EXPECT_EQ(inversionsOf({.order = SendOrder::kFifo, .window = 10}),
            (Times{milliseconds(95), milliseconds(95)}));
}

RC_GTEST_PROP(Egress, DoesWhatAScanOfAllWaitingMessagesWouldDo, ()) {
  const EgressOptions options{.order = *rc::gen::element(SendOrder::kFifo, SendOrder::kPriority),
                              .window = *rc::gen::inRange<uint64_t>(1, 3'000),
                              .totalWindow = *rc::gen::element<uint64_t>(2'500, kUnlimited)};
  base::ManualClock clock;
  Egress egress(clock, options);
  Credit credit(options.window, options.totalWindow);
  std::vector<Waiting> waiting;
  std::vector<Handed> inFlight;
  uint64_t arrivals = 0;

  const auto expected = [&]() -> std::optional<Waiting> {
    std::vector<Waiting> heads;
    for (const Waiting& w : waiting) {
      const bool isHead = std::ranges::none_of(waiting, [&](const Waiting& other) {
        return other.send.to == w.send.to && keyOf(options.order, other) < keyOf(options.order, w);
      });
      if (isHead && credit.admitsTo(w.send.to, w.send.bytes)) heads.push_back(w);
    }
    if (heads.empty()) return std::nullopt;
    const auto best =
        std::ranges::min(heads, {}, [&](const Waiting& w) { return keyOf(options.order, w); });
    if (!credit.admitsInTotal(best.send.bytes)) return std::nullopt;
    return best;
  };

  const auto events = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 12));
  for (const int event : events) {
    clock.advance(Duration(1));
    if (event < 5) {
      Send send = *testing::anySend();
      send.tag = arrivals;
      waiting.push_back({send, arrivals++, {}});
      egress.push(send);
    } else if (event < 9) {
      const auto want = expected();
      const auto got = egress.next();
      RC_ASSERT(got.has_value() == want.has_value());
      if (!got) continue;
      RC_ASSERT(got->send == want->send);
      std::erase_if(waiting, [&](const Waiting& w) { return w.arrival == want->arrival; });
      credit.acquire(got->send.to, got->send.bytes);
      inFlight.push_back(*got);
    } else if (event < 11 && !inFlight.empty()) {
      const auto at = *rc::gen::inRange<size_t>(0, inFlight.size());
      egress.done(inFlight[at]);
      credit.release(inFlight[at].send.to, inFlight[at].send.bytes);
      inFlight.erase(inFlight.begin() + static_cast<ptrdiff_t>(at));
    } else {
      const Rank gone{*rc::gen::inRange<uint32_t>(0, 4)};
      const auto dropped = egress.drop(gone);
      const auto erased =
          std::erase_if(waiting, [&](const Waiting& w) { return w.send.to == gone; });
      RC_ASSERT(dropped.size() == erased);
    }
    RC_ASSERT(egress.waiting() == waiting.size());
    RC_ASSERT(egress.credit().inFlight() == credit.inFlight());
  }
}

// Returns the CPU time to pass `messages` messages through, dealt to `ranks` destinations with room
// for one message each.
Duration costOf(uint32_t ranks, uint32_t messages) {
  base::ManualClock clock;
  Egress egress(clock, {.window = 1});
  const Duration start = base::threadCpuTime();
  for (uint32_t i = 0; i < messages; ++i) egress.push(to(i % ranks, 1, (i / ranks * 37) % 100, i));
  size_t sent = 0;
  std::vector<Handed> inFlight;
  while (egress.waiting() > 0) {
    while (auto handed = egress.next()) inFlight.push_back(*handed);
    sent += inFlight.size();
    for (const Handed& handed : inFlight) egress.done(handed);
    inFlight.clear();
  }
  EXPECT_EQ(sent, messages);
  return base::threadCpuTime() - start;
}

// A scan of the destinations for each message would cost 64 times as much with 64 times as many of
// them.
TEST(Egress, ThousandsOfDestinationsCostALogarithm) {
  const uint32_t messages = base::testsAreShort() ? 8'192 : 40'960;
  Duration few = Duration::max();
  Duration many = Duration::max();
  for (int i = 0; i < 3; ++i) {
    few = std::min(few, costOf(64, messages));
    many = std::min(many, costOf(4096, messages));
  }
  EXPECT_LT(many, 16 * few);
}

}  // namespace
}  // namespace sluice::queue
