#include <tools/sim/segment_network.h>

#include <map>

#include <gtest/gtest.h>

#include <sluice/data/timing/bounds.h>

namespace sluice::sim {
namespace {

using namespace std::chrono_literals;

constexpr Rate kGigabit{1'000'000'000};

// Writes whatever it is told to, and reads at once.
class Traffic final : public StreamUser {
 public:
  explicit Traffic(const NetworkOptions& options) : network(events, options) {}

  StreamId send(uint32_t from, uint32_t to, uint64_t bytes) {
    const StreamId stream = network.open(HostId{from}, HostId{to}, *this);
    toWrite_[stream] = bytes;
    onWritable(stream);
    return stream;
  }
  void onWritable(StreamId stream) override {
    toWrite_[stream] -= network.write(stream, toWrite_[stream]);
  }
  void onReadable(StreamId stream) override {
    const uint64_t bytes = network.readable(stream);
    received[stream] += bytes;
    lastByte[stream] = events.now();
    if (reads) network.read(stream, bytes);
  }
  void run() {
    while (events.runNext()) {
    }
  }
  double seconds() const { return base::seconds(events.now().time_since_epoch()); }

  EventQueue events;
  SegmentNetwork network;
  std::map<StreamId, uint64_t> received;
  std::map<StreamId, TimePoint> lastByte;
  bool reads = true;

 private:
  std::map<StreamId, uint64_t> toWrite_;
};

double secondsFor(uint64_t bytes, Rate rate) {
  return static_cast<double>(bytes) * 8 /
         static_cast<double>(timing::payloadRate(rate).bitsPerSecond);
}

TEST(SegmentNetwork, OneStreamFillsTheLine) {
  Traffic traffic({.hosts = 2, .rate = kGigabit, .latency = 50us});
  const StreamId stream = traffic.send(0, 1, 10'000'000);
  traffic.run();
  EXPECT_EQ(traffic.received[stream], 10'000'000U);
  EXPECT_EQ(traffic.network.counters().dropped, 0U);
  const double least = secondsFor(10'000'000, kGigabit) + 50e-6;
  EXPECT_GE(traffic.seconds(), least);
  EXPECT_LE(traffic.seconds(), least + 0.001);  // slow start takes a few round trips
}

TEST(SegmentNetwork, StreamsOfAHostShareItsLineEqually) {
  Traffic traffic({.hosts = 5, .rate = kGigabit});
  for (uint32_t to = 1; to < 5; ++to) traffic.send(0, to, 2'000'000);
  traffic.run();
  const double all = secondsFor(8'000'000, kGigabit);
  for (const auto& [stream, end] : traffic.lastByte) {
    EXPECT_EQ(traffic.received[stream], 2'000'000U);
    EXPECT_NEAR(base::seconds(end.time_since_epoch()), all, 0.05 * all);
  }
}

TEST(SegmentNetwork, ManySendersToOneOverflowItsPortAndAllBytesArrive) {
  Traffic traffic({.hosts = 65, .rate = kGigabit, .queueBytes = 256 << 10});
  for (uint32_t from = 1; from < 65; ++from) traffic.send(from, 0, 500'000);
  traffic.run();
  for (const auto& [stream, bytes] : traffic.received) EXPECT_EQ(bytes, 500'000U);
  EXPECT_EQ(traffic.received.size(), 64U);
  EXPECT_GT(traffic.network.counters().dropped, 0U);
  EXPECT_GE(traffic.seconds(), secondsFor(64 * 500'000, kGigabit));
  EXPECT_LE(traffic.seconds(), 1.5 * secondsFor(64 * 500'000, kGigabit));
}

TEST(SegmentNetwork, AReaderThatStopsStopsTheSenderAtTheWindow) {
  Traffic traffic({.hosts = 2, .rate = kGigabit, .windowBytes = 1 << 20});
  traffic.reads = false;
  const StreamId stream = traffic.send(0, 1, 50'000'000);
  traffic.run();
  EXPECT_LE(traffic.network.readable(stream), (1U << 20) + kMss);
  EXPECT_GE(traffic.network.readable(stream), 10 * kMss);
}

TEST(SegmentNetwork, LostSegmentsAreSentAgainInOrder) {
  Traffic traffic({.hosts = 2, .rate = kGigabit, .jitter = 1, .loss = 0.05, .seed = 3});
  const StreamId stream = traffic.send(0, 1, 3'000'000);
  traffic.run();
  EXPECT_EQ(traffic.received[stream], 3'000'000U);
  EXPECT_GT(traffic.network.counters().dropped, 5U);
}

TEST(SegmentNetwork, AnOversubscribedUplinkIsTheBottleneckBetweenRacksOnly) {
  const NetworkOptions racks{
      .hosts = 8, .topology = {.hostsPerRack = 4, .oversubscription = 4}, .rate = kGigabit};
  Traffic inside(racks);
  for (uint32_t from = 0; from < 4; ++from) inside.send(from, (from + 1) % 4, 4'000'000);
  inside.run();
  Traffic across(racks);
  for (uint32_t from = 0; from < 4; ++from) across.send(from, from + 4, 4'000'000);
  across.run();
  EXPECT_NEAR(inside.seconds(), secondsFor(4'000'000, kGigabit), 0.003);
  EXPECT_NEAR(across.seconds(), secondsFor(16'000'000, kGigabit), 0.02);
}

TEST(SegmentNetwork, TheSeedDecidesAndNothingElse) {
  const auto endOf = [](uint64_t seed) {
    Traffic traffic({.hosts = 4, .rate = kGigabit, .jitter = 0.5, .loss = 0.01, .seed = seed});
    for (uint32_t from = 1; from < 4; ++from) traffic.send(from, 0, 1'000'000);
    traffic.run();
    return traffic.events.now();
  };
  EXPECT_EQ(endOf(7), endOf(7));
  EXPECT_NE(endOf(7), endOf(8));
}

}  // namespace
}  // namespace sluice::sim
