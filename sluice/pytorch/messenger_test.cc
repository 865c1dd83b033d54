#include <sluice/pytorch/messenger.h>

#include <atomic>
#include <future>

#include <gtest/gtest.h>

namespace sluice::pytorch {
namespace {

TEST(Messenger, RunsEverythingBeforeItEnds) {
  std::atomic<int> ran = 0;
  Messenger messenger;
  for (int n = 0; n < 100; ++n) messenger.post([&] { ++ran; });
  messenger.end();
  EXPECT_EQ(ran, 100);
}

// The first task is like a hook of DDP that all-reduces again, and waits for the result.
TEST(Messenger, TasksMayWaitForTasksPostedLater) {
  std::promise<void> first;
  std::promise<void> second;
  Messenger messenger;
  messenger.post([&, waitsFor = second.get_future().share()] {
    waitsFor.wait();
    first.set_value();
  });
  messenger.post([&] { second.set_value(); });
  EXPECT_EQ(first.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
}

}  // namespace
}  // namespace sluice::pytorch
