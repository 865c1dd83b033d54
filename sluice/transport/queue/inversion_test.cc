#include <sluice/transport/queue/inversion.h>

#include <algorithm>
#include <optional>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace sluice::queue {
namespace {

TimePoint at(int64_t t) {
  return TimePoint(Duration(t));
}

TEST(Inversion, WaitsBehindALessUrgentMessageUntilThatIsThrough) {
  Inversion inversion;
  inversion.handed(0, /*priority=*/7, inversion.mark(7, at(0)), at(0));
  const auto mark = inversion.mark(/*priority=*/2, at(10));
  // The message is handed over at once, since there is credit, and waits all the same behind the
  // bytes that cannot be recalled.
  inversion.handed(1, 2, mark, at(10));
  EXPECT_EQ(inversion.completed(0, at(50)), Duration(0));
  EXPECT_EQ(inversion.completed(1, at(60)), Duration(40));
}

TEST(Inversion, CountsTheWaitInTheQueueToo) {
  Inversion inversion;
  inversion.handed(0, 7, inversion.mark(7, at(0)), at(0));
  const auto mark = inversion.mark(2, at(10));
  EXPECT_EQ(inversion.completed(0, at(50)), Duration(0));
  inversion.handed(1, 2, mark, at(55));
  EXPECT_EQ(inversion.completed(1, at(60)), Duration(40));
}

TEST(Inversion, SameLayerOrMoreUrgentIsNoInversion) {
  Inversion inversion;
  inversion.handed(0, 3, inversion.mark(3, at(0)), at(0));
  inversion.handed(1, 3, inversion.mark(3, at(5)), at(5));
  inversion.handed(2, 8, inversion.mark(8, at(5)), at(5));
  EXPECT_EQ(inversion.completed(0, at(50)), Duration(0));
  EXPECT_EQ(inversion.completed(1, at(60)), Duration(0));
  EXPECT_EQ(inversion.completed(2, at(70)), Duration(0));
}

TEST(Inversion, LessUrgentOnesHandedOverLaterDoNotCount) {
  Inversion inversion;
  inversion.handed(0, 2, inversion.mark(2, at(0)), at(0));
  inversion.handed(1, 7, inversion.mark(7, at(1)), at(1));
  EXPECT_EQ(inversion.completed(0, at(50)), Duration(0));
  EXPECT_EQ(inversion.completed(1, at(60)), Duration(0));
}

TEST(Inversion, UnderFifoOnlyTheTimeBehindTheLessUrgentCounts) {
  Inversion inversion;
  inversion.handed(0, 1, inversion.mark(1, at(0)), at(0));
  const auto less = inversion.mark(9, at(0));
  const auto urgent = inversion.mark(4, at(0));
  inversion.completed(0, at(10));
  inversion.handed(1, 9, less, at(10));
  inversion.completed(1, at(30));
  inversion.handed(2, 4, urgent, at(30));
  EXPECT_EQ(inversion.completed(2, at(35)), Duration(20));
}

// The definition, word for word: every unit of time is looked at by itself.
struct Message {
  uint32_t priority;
  int64_t ready;
  std::optional<int64_t> handed;
  std::optional<int64_t> completed;
  Duration mark;
};

int64_t byDefinition(const std::vector<Message>& all, const Message& u) {
  int64_t inverted = 0;
  for (int64_t t = u.ready; t < *u.completed; ++t) {
    inverted += std::ranges::any_of(all, [&](const Message& v) {
      const bool inFlight = v.handed && *v.handed <= t && (!v.completed || t < *v.completed);
      return inFlight && *v.handed < *u.handed && v.priority > u.priority;
    });
  }
  return inverted;
}

RC_GTEST_PROP(Inversion, EqualsItsDefinitionWhateverTheOrderOfEvents, ()) {
  Inversion inversion;
  std::vector<Message> messages;
  std::vector<size_t> byTicket;
  std::vector<std::pair<size_t, Duration>> results;
  int64_t now = 0;
  const auto events = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 3));
  for (const int event : events) {
    now += *rc::gen::inRange<int64_t>(1, 9);
    std::vector<size_t> candidates;
    for (size_t i = 0; i < messages.size(); ++i) {
      const Message& m = messages[i];
      if (event == 1 ? !m.handed : event == 2 && m.handed && !m.completed) candidates.push_back(i);
    }
    if (event == 0 || candidates.empty()) {
      const auto priority = *rc::gen::inRange<uint32_t>(0, 40);
      messages.push_back({priority, now, {}, {}, inversion.mark(priority, at(now))});
      continue;
    }
    const size_t i = *rc::gen::elementOf(candidates);
    Message& m = messages[i];
    if (event == 1) {
      m.handed = now;
      inversion.handed(byTicket.size(), m.priority, m.mark, at(now));
      byTicket.push_back(i);
    } else {
      m.completed = now;
      const auto ticket = static_cast<uint64_t>(std::ranges::find(byTicket, i) - byTicket.begin());
      results.emplace_back(i, inversion.completed(ticket, at(now)));
    }
  }
  for (const auto& [i, inverted] : results)
    RC_ASSERT(inverted.count() == byDefinition(messages, messages[i]));
}

RC_GTEST_PROP(TimeByPriority, SumsWhatIsAbove, ()) {
  const auto added = *rc::gen::arbitrary<std::vector<std::pair<uint16_t, uint16_t>>>();
  TimeByPriority times;
  for (const auto& [priority, time] : added) times.add(priority, Duration(time));
  const auto asked = *rc::gen::arbitrary<uint16_t>();
  int64_t expected = 0;
  for (const auto& [priority, time] : added) expected += priority > asked ? time : 0;
  RC_ASSERT(times.above(asked).count() == expected);
}

}  // namespace
}  // namespace sluice::queue
