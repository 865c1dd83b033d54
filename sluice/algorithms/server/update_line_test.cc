#include <sluice/algorithms/server/update_line.h>

#include <map>

#include <gtest/gtest.h>

#include <sluice/base/testing/manual_loop.h>

namespace sluice::algorithms {
namespace {

using std::chrono::milliseconds;

constexpr base::Rate kThousandBytes{.bitsPerSecond = 8000};  // a second

// Writes down when each update ends, by the slice's priority.
class LineJob final {
 public:
  explicit LineJob(queue::SendOrder order, base::Rate rate = kThousandBytes)
      : line_(loop_, rate, order) {}

  void add(uint32_t priority, uint64_t bytes, Step step = Step{0}) {
    loop_.post([this, priority, bytes, step] {
      const plan::Slice slice{.priority = priority};
      line_.add(slice, step, bytes, [this, priority] { ended_[priority] = elapsed(); });
    });
    loop_.runReady();
  }
  base::ManualLoop& loop() { return loop_; }
  milliseconds elapsed() const {
    return std::chrono::duration_cast<milliseconds>(loop_.now() - begin_);
  }
  const std::map<uint32_t, milliseconds>& ended() const { return ended_; }

 private:
  base::ManualLoop loop_;
  const TimePoint begin_ = loop_.now();
  UpdateLine line_;
  std::map<uint32_t, milliseconds> ended_;
};

using Ends = std::map<uint32_t, milliseconds>;

TEST(UpdateLine, UpdatesTakeTheirTimeOneAfterTheOther) {
  LineJob job(queue::SendOrder::kFifo);
  job.add(3, 100);
  job.add(2, 200);
  job.add(1, 300);
  EXPECT_TRUE(job.ended().empty());
  job.loop().advance(std::chrono::seconds(1));
  EXPECT_EQ(job.ended(),
            (Ends{{3, milliseconds(100)}, {2, milliseconds(300)}, {1, milliseconds(600)}}));
  job.add(4, 100);  // the line was idle in between
  job.loop().advance(std::chrono::seconds(1));
  EXPECT_EQ(job.ended().at(4), milliseconds(1100));
}

TEST(UpdateLine, TheMostUrgentGoesFirstOfAnEarlierStepBeforeALaterOne) {
  LineJob job(queue::SendOrder::kPriority);
  job.add(3, 100);  // is under way before the others come
  job.add(2, 100);
  job.add(0, 100, Step{1});
  job.add(1, 100);
  job.loop().advance(std::chrono::seconds(1));
  EXPECT_EQ(job.ended(), (Ends{{3, milliseconds(100)},
                               {1, milliseconds(200)},
                               {2, milliseconds(300)},
                               {0, milliseconds(400)}}));
}

TEST(UpdateLine, LateTimersDoNotAddUp) {
  LineJob job(queue::SendOrder::kFifo);
  for (uint32_t i = 0; i < 4; ++i) job.add(i, 100);
  job.loop().stall(milliseconds(250));  // two updates should have ended
  job.loop().runReady();
  EXPECT_EQ(job.ended().at(1), milliseconds(250));
  job.loop().advance(std::chrono::seconds(1));
  EXPECT_EQ(job.ended().at(2), milliseconds(300));
  EXPECT_EQ(job.ended().at(3), milliseconds(400));
}

TEST(UpdateLine, WithoutARateNothingWaits) {
  LineJob job(queue::SendOrder::kFifo, base::Rate{});
  job.add(1, 1'000'000'000);
  EXPECT_EQ(job.ended(), (Ends{{1, milliseconds(0)}}));
}

}  // namespace
}  // namespace sluice::algorithms
