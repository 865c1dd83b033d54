#include <tools/sim/host_loop.h>

#include <string>

#include <gtest/gtest.h>

namespace sluice::sim {
namespace {

using namespace std::chrono_literals;

TEST(HostLoop, WorkWaitsUntilTheServerIsFree) {
  EventQueue events;
  HostLoop busy(events);
  HostLoop idle(events);
  std::string seen;
  const auto note = [&](HostLoop& loop, const std::string& name, Duration cost) {
    loop.post([&, name, cost] {
      EXPECT_TRUE(loop.inLoop());
      seen += name + "@" + std::to_string(events.now().time_since_epoch() / 1us) + " ";
      loop.charge(cost);
    });
  };
  note(busy, "a", 30us);
  note(busy, "b", 10us);
  note(idle, "x", 0us);
  busy.runNow([&] { busy.after(5us, [&] { note(busy, "timer", 0us); }); });
  EXPECT_EQ(seen, "");
  while (events.runNext()) {
  }
  EXPECT_EQ(seen, "a@0 x@0 b@30 timer@40 ");
  EXPECT_EQ(busy.busy(), 40us);
}

TEST(HostLoop, ACancelledTimerDoesNotRun) {
  EventQueue events;
  HostLoop loop(events);
  bool ran = false;
  loop.cancel(loop.after(5us, [&] { ran = true; }));
  while (events.runNext()) {
  }
  EXPECT_FALSE(ran);
}

TEST(EventQueue, EventsOfOneMomentRunInTheOrderInWhichTheyWereMade) {
  struct Recorder final : EventTarget {
    EventQueue* events = nullptr;
    std::string seen;
    void onEvent(uint64_t what) override {
      seen += std::to_string(what);
      if (what == 1) events->at(events->now(), *this, 4);
    }
  } recorder;
  EventQueue events;
  recorder.events = &events;
  const TimePoint soon = events.now() + 10ns;
  for (const uint64_t what : {1U, 2U, 3U}) events.at(soon, recorder, what);
  events.at(events.now(), recorder, 0);
  EXPECT_TRUE(events.runNext());
  EXPECT_FALSE(events.runNext(events.now() + 5ns));
  EXPECT_EQ(events.now().time_since_epoch(), 5ns);
  while (events.runNext()) {
  }
  EXPECT_EQ(recorder.seen, "01234");
}

}  // namespace
}  // namespace sluice::sim
