#include <sluice/base/net/epoll_loop.h>

#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <sluice/base/testing/short_tests.h>

namespace sluice::net {
namespace {

using namespace std::chrono_literals;

std::pair<Fd, Fd> makePipe() {
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe(ends.data()), 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

TEST(EpollLoop, RunsTasksOfEveryThreadInTheirOrder) {
  LoopThread thread("test");
  std::vector<std::vector<int>> seen(4);
  std::vector<std::thread> posters;
  posters.reserve(4);
  for (int poster = 0; poster < 4; ++poster) {
    posters.emplace_back([&, poster] {
      for (int i = 0; i < 1000; ++i) {
        thread.loop().post([&, poster, i] {
          EXPECT_TRUE(thread.loop().inLoop());
          seen[poster].push_back(i);
        });
      }
    });
  }
  for (auto& poster : posters) poster.join();
  std::promise<void> done;
  thread.loop().post([&] { done.set_value(); });
  done.get_future().wait();
  EXPECT_FALSE(thread.loop().inLoop());
  for (const auto& numbers : seen) {
    ASSERT_EQ(numbers.size(), 1000U);
    for (int i = 0; i < 1000; ++i) EXPECT_EQ(numbers[i], i);
  }
}

TEST(EpollLoop, TimersFireNotBeforeTheirTime) {
  EpollLoop loop;
  const TimePoint start = loop.now();
  TimePoint fired;
  std::string seen;
  loop.after(20ms, [&] {
    seen += "b";
    fired = loop.now();
    loop.stop();
  });
  loop.after(5ms, [&] { seen += "a"; });
  loop.cancel(loop.after(1ms, [&] { seen += "x"; }));
  loop.run();
  EXPECT_EQ(seen, "ab");
  EXPECT_GE(fired - start, 20ms);
}

TEST(EpollLoop, KnowsForHowLongItHasOwedATurn) {
  LoopThread thread("test");
  const auto isAsleep = [&] { return thread.loop().overdue() == 0s; };
  const auto until = [](auto holds) {
    while (!holds()) std::this_thread::sleep_for(1ms);
  };
  until(isAsleep);
  std::promise<void> first;
  std::promise<void> second;
  thread.loop().post([&] {
    thread.loop().after(1h, [] {});  // due in an hour: nothing is owed until then
    // Posted together, so that both run in one turn.
    thread.loop().post([end = first.get_future().share()] { end.wait(); });
    thread.loop().post([end = second.get_future().share()] { end.wait(); });
  });
  until([&] { return thread.loop().overdue() >= 30ms; });
  const Duration before = thread.loop().overdue();
  first.set_value();  // the next task of the same turn: the debt goes on
  EXPECT_GE(thread.loop().overdue(), before);
  second.set_value();
  until(isAsleep);
}

TEST(EpollLoop, WatchesDescriptorsUntilUnwatched) {
  EpollLoop loop;
  auto [readEnd, writeEnd] = makePipe();
  std::string got;
  loop.watch(readEnd.get(), EPOLLIN, [&](uint32_t events) {
    EXPECT_TRUE(events & EPOLLIN);
    char byte = 0;
    ASSERT_EQ(::read(readEnd.get(), &byte, 1), 1);
    got += byte;
    if (byte == 'z') {
      loop.unwatch(readEnd.get());  // from inside its own handler
      loop.post([&] { loop.stop(); });
    }
  });
  ASSERT_EQ(::write(writeEnd.get(), "xyz!", 4), 4);
  loop.run();
  EXPECT_EQ(got, "xyz");
}

TEST(EpollLoop, AnEventForADescriptorClosedInTheSameRoundIsNotDelivered) {
  EpollLoop loop;
  auto [firstRead, firstWrite] = makePipe();
  auto [secondRead, secondWrite] = makePipe();
  int calls = 0;
  const auto handler = [&](uint32_t) {
    ++calls;
    loop.unwatch(firstRead.get());
    loop.unwatch(secondRead.get());
    loop.stop();
  };
  loop.watch(firstRead.get(), EPOLLIN, handler);
  loop.watch(secondRead.get(), EPOLLIN, handler);
  ASSERT_EQ(::write(firstWrite.get(), "a", 1), 1);
  ASSERT_EQ(::write(secondWrite.get(), "a", 1), 1);
  loop.run();
  EXPECT_EQ(calls, 1);
}

TEST(EpollLoop, WhatWasPostedBeforeStopRunsAndWhatComesAfterIsDestroyed) {
  auto loop = std::make_unique<EpollLoop>();
  bool ran = false;
  loop->stop();
  loop->post([&] { ran = true; });
  loop->run();
  EXPECT_TRUE(ran);
  auto alive = std::make_shared<int>(1);
  loop->post([alive] { FAIL(); });
  EXPECT_EQ(alive.use_count(), 1);
}

TEST(EpollLoop, SleepsWhenThereIsNothingToDo) {
  LoopThread thread("idle");
  std::promise<clockid_t> promise;
  thread.loop().post([&] {
    clockid_t id{};
    EXPECT_EQ(pthread_getcpuclockid(pthread_self(), &id), 0);
    promise.set_value(id);
  });
  const clockid_t cpuClock = promise.get_future().get();
  const auto cpuNow = [&] {
    timespec t{};
    EXPECT_EQ(clock_gettime(cpuClock, &t), 0);
    return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
  };
  const auto before = cpuNow();
  std::promise<void> later;
  thread.loop().post([&] { thread.loop().after(200ms, [&] { later.set_value(); }); });
  later.get_future().wait();
  EXPECT_LT(cpuNow() - before, 100ms);  // a loop that polls would have used most of 200
}

TEST(EpollLoop, WithoutDescriptorsItSaysSo) {
  if (base::testsAreShort()) GTEST_SKIP() << "sanitizers need files of their own";
  rlimit former{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &former), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = former.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  {
    LoopThread thread("test");
    EXPECT_FALSE(thread.status().isOk());
    EXPECT_TRUE(thread.loop().hasEnded());
    bool ran = false;
    thread.loop().post([&] { ran = true; });
    EXPECT_FALSE(ran);
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &former), 0);
  LoopThread thread("test");
  EXPECT_TRUE(thread.status().isOk());
  EXPECT_FALSE(thread.loop().hasEnded());
}

// A program that makes a daemon of itself does this with os.closerange().
TEST(EpollLoop, SurvivesADescriptorThatWasClosedByOthers) {
  auto [reader, writer] = makePipe();
  EpollLoop loop;
  int events = 0;
  const auto handler = [&](uint32_t ready) {
    events = static_cast<int>(ready);
    loop.unwatch(reader.get());
    loop.stop();
  };
  loop.watch(reader.get(), EPOLLIN, handler);
  const int number = reader.get();
  testing::internal::CaptureStderr();  // before, since it opens descriptors of its own
  ::close(number);
  loop.unwatch(number);  // logged
  loop.watch(number, EPOLLIN, handler);
  loop.run();
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("has another part of this program closed it?"), std::string::npos) << said;
  EXPECT_EQ(events, static_cast<int>(EPOLLERR | EPOLLHUP));
  (void)reader.release();
}

TEST(EpollLoop, EndsWhenItsOwnDescriptorWasClosedByOthers) {
  LoopThread thread("test");
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const auto target = std::filesystem::read_symlink(entry.path(), error);
    // The raw call goes past the thread sanitizer, which would rightly complain.
    if (!error && target == "anon_inode:[eventpoll]")
      ::syscall(SYS_close, std::stoi(entry.path().filename()));
  }
  thread.loop().post([] {});  // wakes it
  for (int i = 0; i < 500 && !thread.loop().hasEnded(); ++i) std::this_thread::sleep_for(10ms);
  EXPECT_TRUE(thread.loop().hasEnded());
}

}  // namespace
}  // namespace sluice::net
