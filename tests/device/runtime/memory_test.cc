#include <gtest/gtest.h>
#include <tests/device/runtime/device_memory.h>
#include <tests/device/runtime/pinned_memory.h>

namespace sluice::pretend {
namespace {

constexpr size_t kDeviceBytes = size_t{1} << 20;
constexpr StreamIndex kOwn = 0;
constexpr StreamIndex kSide = 1;

class MemoryTest : public ::testing::Test {
 protected:
  Place add(StreamIndex stream) { return schedule_.add(stream, Work{}, TimePoint()); }
  void run(StreamIndex stream) {
    schedule_.take(stream);
    schedule_.finish(stream, TimePoint());
  }
  uintptr_t allocate(size_t bytes, StreamIndex stream = kOwn, size_t device = 0) {
    return memory_.allocate(device, bytes, stream, schedule_).value();
  }

  Schedule schedule_{2};
  DeviceMemory memory_{2, kDeviceBytes};
  PinnedMemory pinned_;
};

TEST_F(MemoryTest, FreedBlockGoesToItsOwnStreamOnly) {
  const uintptr_t block = allocate(1000);
  ASSERT_TRUE(memory_.free(block, schedule_));
  EXPECT_NE(allocate(1000, kSide), block);
  EXPECT_NE(allocate(1000, kOwn, 1), block);
  EXPECT_EQ(allocate(1000, kOwn), block);
}

TEST_F(MemoryTest, RecordedBlockWaitsForTheOtherStream) {
  const uintptr_t block = allocate(1000);
  add(kSide);
  memory_.recordStream(block + 10, kSide);
  EXPECT_FALSE(memory_.free(block, schedule_));
  EXPECT_NE(allocate(1000), block);
  run(kSide);
  add(kSide);  // later work does not matter
  EXPECT_EQ(allocate(1000), block);
  EXPECT_EQ(static_cast<uint8_t>(*memory_.mappings().reach(block)), 0xff);
}

TEST_F(MemoryTest, FullDeviceHasNoMemoryUntilTheCacheIsEmptied) {
  const uintptr_t first = allocate(kDeviceBytes / 2);
  const uintptr_t second = allocate(kDeviceBytes / 2);
  EXPECT_FALSE(memory_.allocate(0, 1, kOwn, schedule_));
  EXPECT_TRUE(memory_.allocate(1, 1, kOwn, schedule_));
  memory_.free(first, schedule_);
  memory_.free(second, schedule_);
  EXPECT_FALSE(memory_.allocate(0, kDeviceBytes, kOwn, schedule_));
  memory_.emptyCache(schedule_);
  EXPECT_TRUE(memory_.allocate(0, kDeviceBytes, kOwn, schedule_));
}

TEST_F(MemoryTest, CountsBytes) {
  const uintptr_t block = allocate(1000);
  EXPECT_EQ(memory_.usedBytes(0), 1024U);
  memory_.free(block, schedule_);
  EXPECT_EQ(memory_.usedBytes(0), 0U);
  EXPECT_EQ(memory_.peakBytes(0), 1024U);
  EXPECT_EQ(memory_.usedBytes(1), 0U);
}

TEST_F(MemoryTest, FindsBlocksAndDevices) {
  const uintptr_t block = allocate(1000, kOwn, 1);
  EXPECT_EQ(memory_.blockOf(block + 1023), block);
  EXPECT_FALSE(memory_.blockOf(block + 1024));
  EXPECT_EQ(memory_.deviceOf(block), 1U);
}

TEST_F(MemoryTest, PinnedBlockWithACopyIsNotUsedAgain) {
  void* block = pinned_.allocate(4000, schedule_);
  pinned_.use(block, add(kSide), true, schedule_);
  EXPECT_TRUE(pinned_.isWritten(block, schedule_));
  pinned_.free(block);
  EXPECT_NE(pinned_.allocate(4000, schedule_), block);
  run(kSide);
  EXPECT_EQ(pinned_.allocate(4000, schedule_), block);
}

TEST_F(MemoryTest, PinnedMemoryKnowsItsBytes) {
  auto* block = static_cast<std::byte*>(pinned_.allocate(4000, schedule_));
  EXPECT_EQ(pinned_.blockOf(block + 3999), block);
  EXPECT_TRUE(pinned_.contains(block + 1000, 3000));
  EXPECT_FALSE(pinned_.contains(block + 1000, 4000));
  const int local = 0;
  EXPECT_EQ(pinned_.blockOf(&local), nullptr);
  EXPECT_EQ(pinned_.usedBytes(), 4000U);
  pinned_.free(block);
  EXPECT_EQ(pinned_.usedBytes(), 0U);
  EXPECT_EQ(pinned_.peakBytes(), 4000U);
  pinned_.emptyCache(schedule_);
}

TEST(FreeRangesTest, NeighboursGrowTogether) {
  FreeRanges ranges(100, 30);
  EXPECT_EQ(ranges.take(10), 100U);
  EXPECT_EQ(ranges.take(10), 110U);
  EXPECT_EQ(ranges.take(10), 120U);
  EXPECT_FALSE(ranges.take(1));
  ranges.giveBack(100, 10);
  ranges.giveBack(120, 10);
  EXPECT_FALSE(ranges.take(20));
  ranges.giveBack(110, 10);
  EXPECT_EQ(ranges.take(30), 100U);
}

}  // namespace
}  // namespace sluice::pretend
