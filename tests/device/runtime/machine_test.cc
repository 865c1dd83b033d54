#include <tests/device/runtime/machine.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <stdexcept>

#include <gtest/gtest.h>

namespace sluice::pretend {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t kCount = 1000;
constexpr size_t kBytes = kCount * sizeof(int);
constexpr StreamIndex kMain = 0;

class MachineTest : public ::testing::TestWithParam<Mode> {
 protected:
  MachineTest() {
    Settings settings;
    settings.mode = GetParam();
    settings.patience = milliseconds(100);  // the machine that runs the tests may be busy
    machine_.set(settings);
  }

  int* onDevice(StreamIndex stream) {
    return static_cast<int*>(machine_.allocate(0, kBytes, stream));
  }
  int* pinned() { return static_cast<int*>(machine_.allocatePinned(kBytes)); }
  void fill(StreamIndex stream, int* numbers, int value) {
    machine_.launch(stream,
                    [to = machine_.reach(numbers), value] { std::fill_n(to, kCount, value); },
                    {{reinterpret_cast<uintptr_t>(numbers), true}});
  }
  void copy(StreamIndex stream, Direction direction, int* to, const int* from,
            bool isBlocking = false) {
    machine_.copy(stream, {direction, to, from, kBytes, isBlocking, {}});
  }

  Machine machine_{size_t{1} << 24};
  StreamIndex side_ = machine_.newStream(0);
};

INSTANTIATE_TEST_SUITE_P(Modes, MachineTest,
                         ::testing::Values(Mode::kEager, Mode::kRandom, Mode::kAdversary));

TEST_P(MachineTest, RightProgramIsRight) {
  int* numbers = onDevice(kMain);
  int* staged = pinned();
  for (int round = 1; round < 5; ++round) {
    fill(kMain, numbers, round);
    Event produced;
    machine_.record(kMain, produced);
    machine_.wait(side_, produced);
    copy(side_, Direction::kToHost, staged, numbers);
    Event copied;
    machine_.record(side_, copied);
    machine_.synchronize(copied);
    EXPECT_TRUE(machine_.isDone(copied));
    EXPECT_EQ(staged[kCount - 1], round);
    std::fill_n(staged, kCount, -round);
    copy(side_, Direction::kToDevice, numbers, staged);
    machine_.record(side_, copied);
    machine_.wait(kMain, copied);
    std::vector<int> result(kCount);
    copy(kMain, Direction::kToHost, result.data(), numbers, true);
    EXPECT_EQ(result[0], -round);
  }
  EXPECT_EQ(machine_.statistics().changedSources, 0U);
  machine_.free(numbers);
  machine_.freePinned(staged);
}

TEST_P(MachineTest, EventKeepsItsVersion) {
  Event event;
  machine_.wait(side_, event);  // not recorded: does nothing
  EXPECT_TRUE(machine_.isDone(event));
  std::promise<void> go;
  machine_.record(kMain, event);
  machine_.wait(side_, event);
  machine_.launch(kMain, [ready = go.get_future().share()] { ready.wait_for(seconds(60)); });
  machine_.record(kMain, event);
  machine_.synchronize(side_);  // waits for the older version only
  EXPECT_FALSE(machine_.isDone(event));
  go.set_value();
  machine_.synchronize(event);
  EXPECT_TRUE(machine_.isDone(event));
}

TEST_P(MachineTest, CopyWithoutWaitingNeedsPinnedMemory) {
  int* numbers = onDevice(kMain);
  std::vector<int> unpinned(kCount);
  EXPECT_THROW(copy(kMain, Direction::kToHost, unpinned.data(), numbers), std::invalid_argument);
  EXPECT_THROW(copy(kMain, Direction::kToDevice, numbers, unpinned.data()), std::invalid_argument);
}

TEST_P(MachineTest, ExceptionIsReportedOnce) {
  machine_.launch(kMain, [] { throw std::domain_error("a kernel's error"); });
  EXPECT_THROW(machine_.synchronizeDevice(0), std::domain_error);
  machine_.synchronizeDevice(0);
}

TEST_P(MachineTest, ManyThreadsAndStreams) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const StreamIndex stream = machine_.newStream(static_cast<size_t>(i) % kDevices);
      for (int round = 0; round < 20; ++round) {
        int* numbers = onDevice(stream);
        int* staged = pinned();
        fill(stream, numbers, round);
        copy(stream, Direction::kToHost, staged, numbers);
        Event copied;
        machine_.record(stream, copied);
        machine_.free(numbers);
        machine_.synchronize(copied);
        if (staged[0] != round || staged[kCount - 1] != round) ++wrong;
        machine_.freePinned(staged);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_P(MachineTest, EndsWithWorkPending) {
  Event never;
  for (int i = 0; i < 100; ++i) fill(kMain, onDevice(kMain), i);
  machine_.record(kMain, never);
  machine_.wait(side_, never);
}

TEST_P(MachineTest, ForkedChildMayFreeButNotUse) {
  int* numbers = onDevice(kMain);
  fill(kMain, numbers, 1);
  const pid_t child = ::fork();
  if (child == 0) {
    machine_.free(numbers);
    bool hasThrown = false;
    try {
      machine_.synchronize(kMain);
    } catch (const std::runtime_error&) {
      hasThrown = true;
    }
    ::_exit(hasThrown ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  int result = 0;
  machine_.copy(kMain, {Direction::kToHost, &result, numbers, sizeof result, true, {}});
  EXPECT_EQ(result, 1);
}

using MachineDeathTest = MachineTest;
INSTANTIATE_TEST_SUITE_P(Modes, MachineDeathTest, ::testing::Values(Mode::kEager));

TEST_P(MachineDeathTest, HostCannotAccessDeviceMemory) {
#if defined(SLUICE_SANITIZED)
  GTEST_SKIP() << "a sanitizer reports the fault in its own way";
#endif
  volatile int* numbers = onDevice(kMain);
  EXPECT_EXIT(numbers[0] = 1, ::testing::KilledBySignal(SIGSEGV), "");
}

using AdversaryTest = MachineTest;
INSTANTIATE_TEST_SUITE_P(Modes, AdversaryTest, ::testing::Values(Mode::kAdversary));

TEST_P(AdversaryTest, MissingWaitForTheProducerIsFound) {
  int* numbers = onDevice(kMain);
  int* staged = pinned();
  fill(kMain, numbers, 1);
  copy(side_, Direction::kToHost, staged, numbers);
  machine_.synchronize(side_);
  EXPECT_NE(staged[0], 1);
}

TEST_P(AdversaryTest, MissingWaitBeforeUseIsFound) {
  int* numbers = onDevice(kMain);
  int* staged = pinned();
  std::fill_n(staged, kCount, 1);
  copy(side_, Direction::kToDevice, numbers, staged);
  std::vector<int> result(kCount);
  copy(kMain, Direction::kToHost, result.data(), numbers, true);
  EXPECT_NE(result[0], 1);
}

TEST_P(AdversaryTest, MissingRecordStreamIsFound) {
  int* numbers = onDevice(kMain);
  int* staged = pinned();
  fill(kMain, numbers, 1);
  Event produced;
  machine_.record(kMain, produced);
  machine_.wait(side_, produced);
  copy(side_, Direction::kToHost, staged, numbers);
  machine_.free(numbers);
  machine_.synchronize(side_);
  EXPECT_NE(staged[0], 1);
}

TEST_P(AdversaryTest, RecordStreamKeepsTheBlock) {
  int* numbers = onDevice(kMain);
  int* staged = pinned();
  fill(kMain, numbers, 1);
  Event produced;
  machine_.record(kMain, produced);
  machine_.wait(side_, produced);
  copy(side_, Direction::kToHost, staged, numbers);
  machine_.recordStream(numbers, side_);
  machine_.free(numbers);
  machine_.synchronize(side_);
  EXPECT_EQ(staged[0], 1);
}

TEST_P(AdversaryTest, OverwrittenBeforeItIsReadIsFound) {
  int* numbers = onDevice(kMain);
  int* result = pinned();
  int* staged = pinned();
  fill(kMain, numbers, 1);
  machine_.synchronize(kMain);
  copy(kMain, Direction::kToHost, result, numbers);
  std::fill_n(staged, kCount, 2);
  copy(side_, Direction::kToDevice, numbers, staged);
  machine_.synchronize(kMain);
  EXPECT_NE(result[0], 1);
}

TEST_P(AdversaryTest, ChangedSourceIsCounted) {
  int* numbers = onDevice(kMain);
  int* staged = pinned();
  std::fill_n(staged, kCount, 1);
  copy(kMain, Direction::kToDevice, numbers, staged);
  staged[kCount / 2] = 2;
  machine_.synchronize(kMain);
  EXPECT_EQ(machine_.statistics().changedSources, 1U);
}

TEST_P(AdversaryTest, SourceThatTheDeviceWritesIsNotCounted) {
  int* numbers = onDevice(kMain);
  int* staged = pinned();
  fill(kMain, numbers, 1);
  copy(kMain, Direction::kToHost, staged, numbers);
  copy(kMain, Direction::kToDevice, numbers, staged);
  machine_.synchronize(kMain);
  EXPECT_EQ(machine_.statistics().changedSources, 0U);
}

TEST_P(AdversaryTest, PollingEnds) {
  fill(kMain, onDevice(kMain), 1);
  while (!machine_.isDone(kMain)) std::this_thread::yield();
}

TEST(CopyTest, TakesTimeAndIsCounted) {
  Machine machine(size_t{1} << 24);
  Settings settings;
  settings.bytesPerSecond = 1e6;
  settings.copyLatency = milliseconds(2);
  machine.set(settings);
  void* device = machine.allocate(0, 10'000, kMain);
  void* host = machine.allocatePinned(10'000);
  const StreamIndex side = machine.newStream(0);
  Event begin;
  Event end;
  machine.record(kMain, begin);
  machine.copy(kMain, {Direction::kToDevice, device, host, 10'000, false, {}});
  machine.copy(side, {Direction::kToDevice, device, host, 10'000, false, {}});
  machine.record(kMain, end);
  machine.synchronizeDevice(0);
  EXPECT_GE(machine.elapsed(begin, end), milliseconds(12));
  const std::vector<CopyInterval> intervals = machine.copyIntervals();
  ASSERT_EQ(intervals.size(), 2U);
  EXPECT_GE(intervals[1].end - intervals[0].start, milliseconds(22)) << "they share a link";
  const Statistics statistics = machine.statistics();
  EXPECT_EQ(statistics.copies[static_cast<size_t>(Direction::kToDevice)], 2U);
  EXPECT_EQ(statistics.bytes[static_cast<size_t>(Direction::kToDevice)], 20'000U);
  EXPECT_EQ(statistics.eventsRecorded, 2U);
  EXPECT_EQ(statistics.hostWaits, 1U);
  machine.resetStatistics();
  EXPECT_EQ(machine.statistics().hostWaits, 0U);
  machine.freePinned(host);
}

}  // namespace
}  // namespace sluice::pretend
