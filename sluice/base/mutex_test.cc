#include <sluice/base/mutex.h>

#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace sluice::base {
namespace {

TEST(Guarded, OneAtATime) {
  Guarded<int> counter;
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) counter.with([](int& value) { ++value; });
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(counter.with([](int& value) { return value; }), 4000);
}

class Flag final {
 public:
  void raise() {
    {
      Lock lock(mutex_);
      raised_ = true;
    }
    condition_.notifyAll();
  }
  bool wait(Duration atMost) {
    Lock lock(mutex_);
    return condition_.waitUntil(mutex_, RealClock().now() + atMost,
                                [this]() SLUICE_REQUIRES(mutex_) { return raised_; });
  }

 private:
  Mutex mutex_;
  Condition condition_;
  bool raised_ SLUICE_GUARDED_BY(mutex_) = false;
};

TEST(Condition, AWaitEndsWhenItHoldsOrWhenItsTimeIsUp) {
  Flag flag;
  EXPECT_FALSE(flag.wait(std::chrono::milliseconds(1)));
  std::thread other([&] { flag.raise(); });
  EXPECT_TRUE(flag.wait(std::chrono::minutes(1)));
  other.join();
}

}  // namespace
}  // namespace sluice::base
