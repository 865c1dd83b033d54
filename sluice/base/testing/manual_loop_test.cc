#include <sluice/base/testing/manual_loop.h>

#include <string>

#include <gtest/gtest.h>

namespace sluice::base {
namespace {

using namespace std::chrono_literals;

TEST(ManualLoop, RunsNothingUntilStepped) {
  ManualLoop loop;
  std::string seen;
  loop.post([&] {
    EXPECT_TRUE(loop.inLoop());
    seen += "a";
    loop.post([&] { seen += "c"; });
  });
  loop.post([&] { seen += "b"; });
  EXPECT_EQ(seen, "");
  EXPECT_FALSE(loop.inLoop());
  EXPECT_EQ(loop.runReady(), 3U);
  EXPECT_EQ(seen, "abc");
}

TEST(ManualLoop, TimersRunInOrderOfTimeFirstInFirstOutOnTies) {
  ManualLoop loop;
  std::string seen;
  loop.after(20ms, [&] { seen += "c"; });
  loop.after(10ms, [&] { seen += "a"; });
  loop.after(10ms, [&] { seen += "b"; });
  const TimerId never = loop.after(15ms, [&] { seen += "x"; });
  loop.cancel(never);
  loop.advance(9ms);
  EXPECT_EQ(seen, "");
  loop.advance(1ms);
  EXPECT_EQ(seen, "ab");
  EXPECT_TRUE(loop.advanceToNextTimer());
  EXPECT_EQ(seen, "abc");
  EXPECT_EQ(loop.now().time_since_epoch(), 20ms);
  EXPECT_FALSE(loop.advanceToNextTimer());
  loop.cancel(never);  // a second time is harmless
}

TEST(ManualLoop, ATimerSetOnTheWayIsMetOnTheWay) {
  ManualLoop loop;
  int beats = 0;
  Task beat = [&] {
    ++beats;
    loop.after(10ms, beat);
  };
  loop.after(10ms, beat);
  loop.advance(95ms);
  EXPECT_EQ(beats, 9);
}

}  // namespace
}  // namespace sluice::base
