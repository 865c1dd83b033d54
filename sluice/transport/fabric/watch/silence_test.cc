#include <sluice/transport/fabric/watch/silence.h>

#include <gtest/gtest.h>

namespace sluice::fabric {
namespace {

using namespace std::chrono_literals;

constexpr TimePoint at(Duration d) {
  return TimePoint(d);
}

// One look: when it was to be, when it was, and when the last byte had come by then.
struct Look {
  Duration due, now;
  std::optional<Duration> heard;
};
struct Case {
  const char* what;
  std::vector<Look> looks;
  Duration length;  // at the last look
};

TEST(Silence, IsWhatWeCouldHaveHeard) {
  const std::vector<Case> cases{
      {"nothing ever", {{1s, 1s, {}}, {2s, 2s, {}}}, 2s},
      {"heard between looks", {{1s, 1s, 900ms}, {2s, 2s, 1700ms}}, 300ms},
      {"heard once, then nothing", {{1s, 1s, 900ms}, {2s, 2s, 900ms}, {3s, 3s, 900ms}}, 2100ms},
      {"we were stopped for 5 s", {{1s, 1s, 900ms}, {2s, 7s, 900ms}}, 1100ms},
      {"stopped twice", {{1s, 1s, 900ms}, {2s, 7s, 900ms}, {8s, 13s, 900ms}}, 2100ms},
      {"heard after the stop", {{1s, 1s, 900ms}, {2s, 7s, 900ms}, {8s, 8s, 7500ms}}, 500ms},
      {"heard just before a late look", {{1s, 1s, 900ms}, {2s, 7s, 6900ms}}, 0s},
      {"stopped before anything came", {{1s, 9s, {}}}, 1s},
  };
  for (const Case& c : cases) {
    Silence silence(at(0s));
    for (const Look& look : c.looks) {
      silence.look(at(look.now), look.heard ? std::optional(at(*look.heard)) : std::nullopt,
                   at(look.due));
    }
    const TimePoint now = at(c.looks.back().now);
    EXPECT_EQ(silence.length(now), c.length) << c.what;
    EXPECT_EQ(silence.reaches(10s), now + 10s - c.length) << c.what;
  }
}

TEST(Silence, BeginsAnewWhenExcused) {
  Silence silence(at(0s));
  silence.look(at(5s), std::nullopt, at(5s));
  silence.excuse(at(6s));
  EXPECT_EQ(silence.length(at(7s)), 1s);
  EXPECT_EQ(silence.sinceHeard(at(7s)), 1s);
  silence.excuse(at(3s));  // we know more by now
  EXPECT_EQ(silence.length(at(7s)), 1s);
}

}  // namespace
}  // namespace sluice::fabric
