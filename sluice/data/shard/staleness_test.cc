#include <sluice/data/shard/staleness.h>

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include <sluice/base/testing/short_tests.h>

namespace sluice::shard {
namespace {

TEST(Staleness, MayGoOnIsABoundOnTheDistance) {
  struct Case {
    uint64_t clock, slowest, bound;
    bool may;
  };
  for (const Case& c :
       {Case{0, 0, 0, true}, Case{1, 0, 0, false}, Case{3, 0, 3, true}, Case{4, 0, 3, false},
        Case{4, 1, 3, true}, Case{2, 9, 0, true}, Case{1000, 0, kUnbounded, true}}) {
    EXPECT_EQ(mayGoOn(c.clock, c.slowest, c.bound), c.may)
        << c.clock << " " << c.slowest << " " << c.bound;
  }
}

// One slice, its server and its workers, and messages that take their time: every turn, one of the
// workers begins its next step, or one message arrives. A worker's parameters are counts of updates
// by worker, so that the bound can be seen in the parameters themselves, and not only in the clocks
// that keep it.
class Interleaving final {
 public:
  Interleaving(uint32_t seed, size_t workers, uint64_t bound)
      : random_(seed), bound_(bound), server_(workers, bound), held_(workers), workers_(workers) {
    for (Worker& worker : workers_) worker.reads.resize(workers);
  }

  void run(size_t turns) {
    std::vector<size_t>
        able;  // by 2 * worker: begins a step; by 2 * worker + 1: its oldest push arrives
    while (turns-- > 0) {
      able.clear();
      for (size_t w = 0; w < workers_.size(); ++w) {
        if (!workers_[w].waits) able.push_back(2 * w);
        if (!workers_[w].pushes.empty()) able.push_back(2 * w + 1);
      }
      ASSERT_FALSE(able.empty()) << "everybody waits, and nothing is on its way";
      const size_t next = able[random_() % able.size()];
      if (next % 2 == 0) {
        begin(next / 2);
      } else {
        arrive(next / 2);
      }
    }
  }
  uint64_t pulls() const { return pulls_; }
  uint64_t steps() const { return steps_; }

 private:
  struct Worker {
    uint64_t clock = 0;
    uint64_t copy = 0;            // the slowest, as its parameters know it
    std::vector<uint64_t> reads;  // updates in its parameters, by worker
    bool waits = false;
    std::vector<bool> pushes;  // on their way; true: wants an answer
  };

  void begin(size_t w) {
    Worker& worker = workers_[w];
    for (size_t v = 0; v < workers_.size(); ++v) {
      if (worker.reads[v] + bound_ < worker.clock)
        FAIL() << "worker " << w << " reads too little of worker " << v;
      if (worker.reads[v] > workers_[v].clock) FAIL() << "updates out of nowhere";
    }
    if (worker.reads[w] != worker.clock) FAIL() << "not all of its own";
    ++steps_;
    ++worker.clock;
    worker.waits = !mayGoOn(worker.clock, worker.copy, bound_);
    worker.pushes.push_back(worker.waits);
    if (!worker.waits) ++worker.reads[w];  // its own, until the next pull
  }

  void arrive(size_t w) {
    const bool wantsAnswer = workers_[w].pushes.front();
    workers_[w].pushes.erase(workers_[w].pushes.begin());
    server_.advance(w);
    ++held_[w];
    if (wantsAnswer) server_.wait(w);
    for (const size_t released : server_.release()) {
      workers_[released].copy = server_.slowest();
      workers_[released].reads = held_;
      workers_[released].waits = false;
      ++pulls_;
    }
  }

  std::mt19937 random_;
  const uint64_t bound_;
  Staleness server_;
  std::vector<uint64_t> held_;  // updates that the server has applied, by worker
  std::vector<Worker> workers_;
  uint64_t pulls_ = 0;
  uint64_t steps_ = 0;
};

TEST(Staleness, TheBoundHoldsInEveryInterleaving) {
  const uint32_t interleavings = base::testsAreShort() ? 5'000 : 100'000;
  uint64_t steps = 0;
  uint64_t pulls = 0;
  for (uint32_t seed = 0; seed < interleavings && !HasFatalFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Interleaving world(seed, 2 + seed % 4, seed / 4 % 5);
    world.run(50);
    steps += world.steps();
    pulls += world.pulls();
  }
  // Neither does everybody always wait, nor nobody ever.
  EXPECT_GT(steps, uint64_t{10} * interleavings);
  EXPECT_GT(pulls, uint64_t{interleavings});
  EXPECT_LT(pulls, steps);
}

TEST(Staleness, NobodyWaitsForOneWhoIsGone) {
  Staleness slice(3, 1);
  for (const size_t worker : {0U, 0U, 1U}) slice.advance(worker);
  slice.wait(0);
  slice.wait(1);
  EXPECT_EQ(slice.release(), std::vector<size_t>{1});  // at clock 1, with the slowest at 0
  slice.forget(2);
  EXPECT_EQ(slice.slowest(), 1U);
  EXPECT_EQ(slice.release(), std::vector<size_t>{0});
  // Nor does it wait itself any more.
  slice.advance(0);
  slice.wait(0);
  slice.forget(0);
  EXPECT_TRUE(slice.release().empty());
  EXPECT_FALSE(slice.isWaiting(0));
  slice.advance(1);
  slice.wait(1);
  EXPECT_EQ(slice.release(), std::vector<size_t>{1});  // alone, it never waits
  slice.forget(1);
  EXPECT_EQ(slice.slowest(), 0U);
}

TEST(Staleness, TheFastestPullsEveryTimeAndTheSlowestSeldom) {
  // Worker 0 is as slow as can be: it goes on only when the other waits for it.
  Staleness slice(2, 3);
  uint64_t pulls = 0;
  for (uint64_t copy = 0, clock = 0; clock < 20;) {
    slice.advance(1);
    ++clock;
    if (mayGoOn(clock, copy, 3)) continue;
    ++pulls;
    slice.wait(1);
    while (slice.release().empty()) slice.advance(0);
    copy = slice.slowest();
  }
  EXPECT_EQ(pulls, 17U);  // from clock 4 on, each time
  EXPECT_EQ(slice.slowest(), 17U);
}

}  // namespace
}  // namespace sluice::shard
