#include <sluice/transport/fabric/testing/contract_suite.h>

#include <array>
#include <fstream>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sluice/base/cpu_time.h>

namespace sluice::fabric::contract {

// ---- Delivery ----

TEST_P(FabricContract, APayloadArrivesWithAllThatWasSaidAboutIt) {
  start(2);
  const auto payload = pattern(4000);
  Message message{Step{7}, TensorId{3}, SliceId{9}, Stage::kPush, wire::Flags::kNone, DType::kF32};
  send(0, 1, payload, Lane::kUrgent, message);
  ASSERT_TRUE(receiver(1).waitLanded(1));
  ASSERT_TRUE(sends_.waitForAll());
  EXPECT_TRUE(sends_.status().isOk()) << sends_.status().toString();
  const Arrival arrival = seen(1).arrivals[0];
  EXPECT_EQ(arrival.from, Rank{0});
  EXPECT_EQ(arrival.lane, Lane::kUrgent);
  EXPECT_EQ(arrival.header.source, Rank{0});
  EXPECT_EQ(arrival.header.destination, Rank{1});
  EXPECT_EQ(arrival.header.step, Step{7});
  EXPECT_EQ(arrival.header.tensor, TensorId{3});
  EXPECT_EQ(arrival.header.slice, SliceId{9});
  EXPECT_EQ(arrival.header.stage, Stage::kPush);
  EXPECT_EQ(arrival.header.dtype, DType::kF32);
  EXPECT_EQ(arrival.header.length, 4000U);
  EXPECT_TRUE(arrival.status.isOk());
  EXPECT_EQ(*arrival.bytes, payload);
}

TEST_P(FabricContract, PayloadsOfEverySizeArriveWhole) {
  start(2);
  std::vector<std::vector<std::byte>> payloads;
  for (const size_t bytes : {0U, 1U, 2U, 71U, 72U, 73U, 4095U, 4096U, 16384U, 65463U, 65464U,
                             65465U, 65535U, 65536U, 65537U, 131072U, 200'000U, 1'048'577U}) {
    payloads.push_back(pattern(bytes, static_cast<uint32_t>(bytes)));
  }
  for (const auto& payload : payloads) send(0, 1, payload);
  ASSERT_TRUE(receiver(1).waitLanded(payloads.size()));
  ASSERT_TRUE(sends_.waitForAll());
  const Seen got = seen(1);
  for (size_t i = 0; i < payloads.size(); ++i) {
    EXPECT_TRUE(*got.arrivals[i].bytes == payloads[i]) << payloads[i].size() << " bytes";
  }
}

TEST_P(FabricContract, NothingButAHeaderMayBeSent) {
  start(2);
  fabric(0).send(Rank{1}, Lane::kControl, numbered(5), ConstBuffer{}, sends_.expect());
  ASSERT_TRUE(receiver(1).waitLanded(1));
  ASSERT_TRUE(sends_.waitForAll());
  EXPECT_EQ(seen(1).arrivals[0].header.step, Step{5});
  EXPECT_EQ(seen(1).arrivals[0].header.length, 0U);
}

TEST_P(FabricContract, SixtyFourMebibytesInOneMessage) {
  start(2);
  const auto payload = pattern(size_t{64} << 20);
  send(0, 1, payload);
  ASSERT_TRUE(receiver(1).waitLanded(1));
  ASSERT_TRUE(sends_.waitForAll());
  EXPECT_TRUE(*seen(1).arrivals[0].bytes == payload);
}

TEST_P(FabricContract, BuffersNeedNoAlignment) {
  constexpr size_t kBytes = 300'000;
  constexpr std::array<size_t, 3> kOffsets{1, 3, 7};
  const auto memory = pattern(kBytes + 7);
  std::vector<std::vector<std::byte>> places(
      kOffsets.size(), std::vector<std::byte>(kBytes + size_t{2} * 7, std::byte{0xee}));
  Completions landed(pace_);
  Watched<size_t> count(pace_);
  prepare(1, 2).answer = [&](Rank, Lane, const wire::Header& header) -> Result<Landing> {
    const size_t i = index(header.step);
    return Landing{{places[i].data() + kOffsets[i], header.length},
                   landed.expect([&](const Status&) { count.change([](size_t& n) { ++n; }); })};
  };
  start(2);
  for (size_t i = 0; i < kOffsets.size(); ++i) {
    fabric(0).send(Rank{1}, Lane::kBulk, numbered(i), {memory.data() + kOffsets[i], kBytes},
                   sends_.expect());
  }
  ASSERT_TRUE(count.waitUntil([&](size_t n) { return n == kOffsets.size(); }));
  ASSERT_TRUE(sends_.waitForAll());
  ASSERT_TRUE(landed.waitForAll());
  EXPECT_EQ(landed.countOf(Code::kOk), kOffsets.size());
  for (size_t i = 0; i < kOffsets.size(); ++i) {
    const size_t offset = kOffsets[i];
    EXPECT_EQ(std::memcmp(memory.data() + offset, places[i].data() + offset, kBytes), 0);
    EXPECT_EQ(places[i][offset - 1], std::byte{0xee});
    EXPECT_EQ(places[i][offset + kBytes], std::byte{0xee});
  }
}

TEST_P(FabricContract, BytesLandWhereTheReceiverSaidAndNowhereElse) {
  std::vector<std::byte> place(3000, std::byte{0xee});
  Completions landed(pace_);
  prepare(1, 2).answer = [&](Rank, Lane, const wire::Header&) -> Result<Landing> {
    return Landing{{place.data() + 1000, 2000}, landed.expect()};  // larger than the payload
  };
  start(2);
  const auto payload = pattern(1000);
  send(0, 1, payload);
  ASSERT_TRUE(sends_.waitForAll());
  rank(0).closeAndWait();
  ASSERT_TRUE(receiver(1).waitLeft());
  ASSERT_TRUE(landed.waitForAll());
  EXPECT_TRUE(landed.status().isOk());
  EXPECT_TRUE(std::equal(payload.begin(), payload.end(), place.begin() + 1000));
  for (size_t i = 0; i < 1000; ++i) {
    ASSERT_EQ(place[i], std::byte{0xee});
    ASSERT_EQ(place[2000 + i], std::byte{0xee});
  }
}

TEST_P(FabricContract, TheSendersOwnFlagsTravelUnread) {
  start(2);
  constexpr auto kOwnFlags = wire::Flags{0x5a00};
  Message message;
  message.flags = kOwnFlags;
  send(0, 1, pattern(8), Lane::kControl, message);
  ASSERT_TRUE(receiver(1).waitLanded(1));
  ASSERT_TRUE(sends_.waitForAll());
  EXPECT_EQ(seen(1).arrivals[0].header.flags, message.flags);
}

TEST_P(FabricContract, AnEncodedPayloadMayHaveAnyLength) {
  start(2);
  Message message;
  message.flags = wire::Flags::kEncoded;
  message.dtype = DType::kF32;
  const auto payload = pattern(3);
  send(0, 1, payload, Lane::kBulk, message);
  ASSERT_TRUE(receiver(1).waitLanded(1));
  ASSERT_TRUE(sends_.waitForAll());
}

TEST_P(FabricContract, EveryLaneDelivers) {
  start(2);
  const auto payload = pattern(100);
  for (const Lane lane : {Lane::kBulk, Lane::kUrgent, Lane::kControl}) send(0, 1, payload, lane);
  ASSERT_TRUE(receiver(1).waitLanded(3));
  ASSERT_TRUE(sends_.waitForAll());
  std::set<Lane> lanes;
  for (const Arrival& arrival : seen(1).arrivals) lanes.insert(arrival.lane);
  EXPECT_EQ(lanes.size(), 3U);
}

TEST_P(FabricContract, HeadersOfALaneComeInTheOrderOfTheSends) {
  start(2);
  const std::vector<std::vector<std::byte>> payloads{pattern(0), pattern(300'000), pattern(10),
                                                     pattern(65'536)};
  for (uint64_t i = 0; i < 200; ++i) {
    for (const Lane lane : {Lane::kBulk, Lane::kUrgent, Lane::kControl}) {
      send(0, 1, payloads[i % payloads.size()], lane, numbered(i));
    }
  }
  ASSERT_TRUE(receiver(1).waitLanded(600));
  ASSERT_TRUE(sends_.waitForAll());
  for (const Lane lane : {Lane::kBulk, Lane::kUrgent, Lane::kControl}) {
    EXPECT_EQ(stepsSeen(1, 0, lane), firstNumbers(200));
  }
}

TEST_P(FabricContract, TenThousandSmallMessagesInFlight) {
  start(2);
  const auto payload = pattern(48);
  for (uint64_t i = 0; i < 10'000; ++i) send(0, 1, payload, Lane::kUrgent, numbered(i));
  ASSERT_TRUE(receiver(1).waitLanded(10'000));
  ASSERT_TRUE(sends_.waitForAll());
  EXPECT_EQ(sends_.countOf(Code::kOk), 10'000U);
  EXPECT_EQ(stepsSeen(1, 0, Lane::kUrgent), firstNumbers(10'000));
  for (const Arrival& arrival : seen(1).arrivals) ASSERT_EQ(*arrival.bytes, payload);
}

TEST_P(FabricContract, ARankCanSendToItself) {
  start(1);
  const auto payload = pattern(1000);
  send(0, 0, payload);
  ASSERT_TRUE(receiver(0).waitLanded(1));
  ASSERT_TRUE(sends_.waitForAll());
  EXPECT_EQ(seen(0).arrivals[0].from, Rank{0});
  EXPECT_EQ(*seen(0).arrivals[0].bytes, payload);
}

TEST_P(FabricContract, ARankCanSendItselfMuchInOrder) {
  start(1);
  const auto payload = pattern(1 << 20);
  for (uint64_t i = 0; i < 50; ++i) send(0, 0, payload, Lane::kBulk, numbered(i));
  ASSERT_TRUE(receiver(0).waitLanded(50));
  ASSERT_TRUE(sends_.waitForAll());
  EXPECT_EQ(stepsSeen(0, 0, Lane::kBulk), firstNumbers(50));
  for (const Arrival& arrival : seen(0).arrivals) ASSERT_TRUE(*arrival.bytes == payload);
}

TEST_P(FabricContract, ManySendersOneReceiver) {
  constexpr uint32_t kSenders = 6;
  start(kSenders + 1);
  const auto payload = pattern(50'000);
  for (uint64_t i = 0; i < 40; ++i) {
    for (uint32_t from = 1; from <= kSenders; ++from)
      send(from, 0, payload, Lane::kBulk, numbered(i));
  }
  ASSERT_TRUE(receiver(0).waitLanded(size_t{40} * kSenders));
  ASSERT_TRUE(sends_.waitForAll());
  for (uint32_t from = 1; from <= kSenders; ++from)
    EXPECT_EQ(stepsSeen(0, from, Lane::kBulk), firstNumbers(40));
}

TEST_P(FabricContract, OneSenderManyReceivers) {
  start(6);
  const auto payload = pattern(100'000);
  for (uint64_t i = 0; i < 20; ++i) {
    for (uint32_t to = 1; to < 6; ++to) send(0, to, payload, Lane::kBulk, numbered(i));
  }
  for (uint32_t to = 1; to < 6; ++to) {
    ASSERT_TRUE(receiver(to).waitLanded(20));
    EXPECT_EQ(stepsSeen(to, 0, Lane::kBulk), firstNumbers(20));
  }
  ASSERT_TRUE(sends_.waitForAll());
}

TEST_P(FabricContract, BothDirectionsAtOnce) {
  start(2);
  flood(0, 1);
  flood(1, 0);
  ASSERT_TRUE(receiver(0).waitLanded(kFloodMessages));
  ASSERT_TRUE(receiver(1).waitLanded(kFloodMessages));
  ASSERT_TRUE(sends_.waitForAll());
  EXPECT_EQ(sends_.countOf(Code::kOk), 2 * kFloodMessages);
}

TEST_P(FabricContract, AllToAllOnAllLanes) {
  start(4);
  const auto payload = pattern(30'000);
  for (uint64_t i = 0; i < 20; ++i) {
    for (uint32_t from = 0; from < 4; ++from) {
      for (uint32_t to = 0; to < 4; ++to) {
        send(from, to, payload, static_cast<Lane>(i % wire::kLanes), numbered(i / wire::kLanes));
      }
    }
  }
  for (uint32_t to = 0; to < 4; ++to) ASSERT_TRUE(receiver(to).waitLanded(80));
  ASSERT_TRUE(sends_.waitForAll());
  for (uint32_t to = 0; to < 4; ++to) {
    for (uint32_t from = 0; from < 4; ++from)
      EXPECT_EQ(stepsSeen(to, from, Lane::kControl), firstNumbers(7));
  }
}

TEST_P(FabricContract, ThreadsMaySendAtTheSameTime) {
  start(2);
  if (!world().hasThreads()) GTEST_SKIP() << "this world has one thread";
  const auto payload = pattern(500);
  std::vector<std::thread> threads;
  for (uint32_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (uint64_t i = 0; i < 500; ++i) {
        Message message = numbered(i);
        message.tensor = TensorId{thread};
        send(0, 1, payload, Lane::kBulk, message);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  ASSERT_TRUE(receiver(1).waitLanded(2000));
  ASSERT_TRUE(sends_.waitForAll());
  std::vector<std::vector<uint64_t>> steps(4);
  for (const Arrival& arrival : seen(1).arrivals) {
    steps[index(arrival.header.tensor)].push_back(index(arrival.header.step));
  }
  for (const auto& each : steps) EXPECT_EQ(each, firstNumbers(500));
}

// ---- Threads and re-entrance ----

TEST_P(FabricContract, CompletionsRunOnTheLoopAndNeverInsideSend) {
  start(2);
  const auto payload = pattern(10);
  std::atomic<bool> isInsideSend{false};
  std::atomic<int> wrong{0};
  rank(0).loop.post([&] {
    isInsideSend = true;
    for (const uint32_t to : {0U, 1U, 99U}) {
      send(0, to, payload, Lane::kBulk, {}, [&](const Status&) {
        if (isInsideSend || !rank(0).loop.inLoop()) ++wrong;
      });
    }
    isInsideSend = false;
  });
  ASSERT_TRUE(receiver(1).waitLanded(1));
  ASSERT_TRUE(receiver(0).waitLanded(1));
  ASSERT_TRUE(sends_.waitForAll());
  EXPECT_EQ(wrong, 0);
}

TEST_P(FabricContract, ACompletionMaySendTheNextMessage) {
  start(2);
  const auto payload = pattern(1000);
  std::function<void(uint64_t)> sendFrom = [&](uint64_t i) {
    send(0, 1, payload, Lane::kBulk, numbered(i), [&, i](const Status& status) {
      if (status.isOk() && i + 1 < 100) sendFrom(i + 1);
    });
  };
  sendFrom(0);
  ASSERT_TRUE(receiver(1).waitLanded(100));
  ASSERT_TRUE(sends_.waitForAll());
  EXPECT_EQ(stepsSeen(1, 0, Lane::kBulk), firstNumbers(100));
}

TEST_P(FabricContract, AReceiverMayAnswerFromInside) {
  const auto payload = pattern(1000);
  prepare(1, 2).answer = [&](Rank from, Lane lane, const wire::Header& header) -> Result<Landing> {
    send(1, index(from), payload, lane, numbered(index(header.step)));
    return Landing{};
  };
  start(2);
  for (uint64_t i = 0; i < 100; ++i) send(0, 1, payload, Lane::kUrgent, numbered(i));
  ASSERT_TRUE(receiver(0).waitLanded(100));
  ASSERT_TRUE(sends_.waitForAll());
  EXPECT_EQ(stepsSeen(0, 1, Lane::kUrgent), firstNumbers(100));
}

TEST_P(FabricContract, PingPongFromLandings) {
  const auto payload = pattern(4);
  for (uint32_t i = 0; i < 2; ++i) {
    prepare(i, 2).onLanded = [&, i](Rank from, Lane lane, const wire::Header& header) {
      if (index(header.step) < 200)
        send(i, index(from), payload, lane, numbered(index(header.step) + 1));
    };
  }
  start(2);
  send(0, 1, payload, Lane::kControl, numbered(0));
  ASSERT_TRUE(receiver(1).waitLanded(101));
  ASSERT_TRUE(receiver(0).waitLanded(100));
  ASSERT_TRUE(sends_.waitForAll());
}

// ---- Invalid sends ----

TEST_P(FabricContract, ARankThatDoesNotExistIsAnError) {
  start(2);
  send(0, 2, pattern(1));
  send(0, 4'000'000'000, pattern(1));
  ASSERT_TRUE(sends_.waitForAll());
  EXPECT_EQ(sends_.countOf(Code::kInvalidArgument), 2U);
  EXPECT_THAT(sends_.status().message(), HasSubstr("rank 2"));
}

TEST_P(FabricContract, WhatTheWireCannotCarryIsRefusedBeforeItIsSent) {
  start(2);
  const auto payload = pattern(7);
  fabric(0).send(Rank{1}, Lane::kBulk, {}, {payload.data(), wire::kMaxLength + 1}, sends_.expect());
  fabric(0).send(Rank{1}, Lane::kBulk, {}, {nullptr, 7}, sends_.expect());
  Message goodbye;
  goodbye.flags = wire::Flags::kGoodbye;
  send(0, 1, payload, Lane::kBulk, goodbye);
  Message ragged;
  ragged.dtype = DType::kF32;
  send(0, 1, payload, Lane::kBulk, ragged);
  ASSERT_TRUE(sends_.waitForAll());
  EXPECT_EQ(sends_.countOf(Code::kInvalidArgument), 4U);
  send(0, 1, payload);  // the stream still works
  ASSERT_TRUE(receiver(1).waitLanded(1));
  ASSERT_TRUE(sends_.waitForAll());
}

// ---- Pressure ----

TEST_P(FabricContract, LaterIsAskedAgainWithTheSameHeaderAfterResume) {
  Valve valve;
  prepare(1, 2).answer = through(valve);
  start(2);
  const auto payload = pattern(5000);
  for (uint64_t i = 0; i < 10; ++i) send(0, 1, payload, Lane::kBulk, numbered(i));
  ASSERT_TRUE(waitUntilAsked(valve));
  world().pass(kMoment);
  EXPECT_EQ(valve.asked, 1);  // the lane waits: nobody asks again unbidden
  EXPECT_TRUE(seen(1).arrivals.empty());
  valve.closed = false;
  fabric(1).resume(Rank{0}, Lane::kBulk);
  ASSERT_TRUE(receiver(1).waitLanded(10));
  ASSERT_TRUE(sends_.waitForAll());
  EXPECT_EQ(stepsSeen(1, 0, Lane::kBulk), firstNumbers(10));
  EXPECT_EQ(*seen(1).arrivals[0].bytes, payload);
}

TEST_P(FabricContract, LaterHoldsOnlyItsLane) {
  prepare(1, 2).answer = [](Rank, Lane lane, const wire::Header&) -> Result<Landing> {
    return lane == Lane::kBulk ? Landing::later() : Landing{};
  };
  start(2);
  flood(0, 1, Lane::kBulk);
  const auto& payload = keep(pattern(100));
  for (uint64_t i = 0; i < 20; ++i) {
    send(0, 1, payload, Lane::kUrgent, numbered(i));
    send(0, 1, payload, Lane::kControl, numbered(i));
  }
  ASSERT_TRUE(receiver(1).waitLanded(40));
  EXPECT_EQ(stepsSeen(1, 0, Lane::kUrgent), firstNumbers(20));
  EXPECT_EQ(stepsSeen(1, 0, Lane::kControl), firstNumbers(20));
}

TEST_P(FabricContract, LaterHoldsOnlyItsRank) {
  prepare(2, 3).answer = [](Rank from, Lane, const wire::Header&) -> Result<Landing> {
    return from == Rank{0} ? Landing::later() : Landing{};
  };
  start(3);
  flood(0, 2);
  for (uint64_t i = 0; i < 20; ++i) send(1, 2, pattern(100'000), Lane::kBulk, numbered(i));
  ASSERT_TRUE(receiver(2).waitLanded(20));
  EXPECT_EQ(stepsSeen(2, 1, Lane::kBulk), firstNumbers(20));
}

TEST_P(FabricContract, LaterMayBeSaidManyTimes) {
  std::atomic<int> asked{0};
  prepare(1, 2).answer = [&](Rank from, Lane lane, const wire::Header&) -> Result<Landing> {
    if (++asked % 3 == 0) return Landing{};
    fabric(1).resume(from, lane);  // may be called from inside, too
    return Landing::later();
  };
  start(2);
  const auto payload = pattern(3000);
  for (uint64_t i = 0; i < 30; ++i) send(0, 1, payload, Lane::kBulk, numbered(i));
  ASSERT_TRUE(receiver(1).waitLanded(30));
  ASSERT_TRUE(sends_.waitForAll());
  EXPECT_EQ(asked, 90);
  EXPECT_EQ(stepsSeen(1, 0, Lane::kBulk), firstNumbers(30));
}

TEST_P(FabricContract, ResumeOfWhatDoesNotWaitDoesNothing) {
  start(2);
  fabric(1).resume(Rank{0}, Lane::kBulk);
  fabric(1).resume(Rank{77}, Lane::kBulk);
  send(0, 1, pattern(10));
  ASSERT_TRUE(receiver(1).waitLanded(1));
  fabric(1).resume(Rank{0}, Lane::kBulk);
  rank(1).settle();
  ASSERT_TRUE(sends_.waitForAll());
  EXPECT_EQ(seen(1).arrivals.size(), 1U);
}

TEST_P(FabricContract, ASlowReceiverStopsTheSenderAndNothingPilesUp) {
  const auto residentBytes = [] {
    std::ifstream statm("/proc/self/statm");
    size_t pages = 0;
    statm >> pages >> pages;
    return pages * 4096;
  };
  Valve valve;
  prepare(1, 2).answer = through(valve);
  start(2);
  flood(0, 1);  // 256 MiB, all of the same 4 MiB of memory
  ASSERT_TRUE(waitUntilAsked(valve));
  const size_t before = residentBytes();
  world().pass(kMoment * 4);
  EXPECT_LT(sends_.ended() * kFloodBytes,
            size_t{32} << 20);  // the sockets' limit, not all that was queued
  EXPECT_LT(residentBytes(), before + (size_t{48} << 20));
  valve.closed = false;
  fabric(1).resume(Rank{0}, Lane::kBulk);
  ASSERT_TRUE(receiver(1).waitLanded(kFloodMessages));
  ASSERT_TRUE(sends_.waitForAll());
  EXPECT_EQ(sends_.countOf(Code::kOk), kFloodMessages);
}

// ---- Refusal ----

TEST_P(FabricContract, ARefusedMessageIsReadPastAndCounted) {
  prepare(1, 2).answer = [](Rank, Lane, const wire::Header& header) -> Result<Landing> {
    if (index(header.step) % 2 == 1) return Status(Code::kRefused, "odd");
    return Landing{};
  };
  start(2);
  const std::vector<std::vector<std::byte>> payloads{pattern(100), pattern(0), pattern(3'000'000),
                                                     pattern(70'000)};
  for (uint64_t i = 0; i < 80; ++i) send(0, 1, payloads[(i / 2) % 4], Lane::kBulk, numbered(i));
  ASSERT_TRUE(receiver(1).waitLanded(40));
  ASSERT_TRUE(sends_.waitForAll());
  EXPECT_EQ(sends_.countOf(Code::kOk), 80U);  // the sender is not told
  rank(0).closeAndWait();
  ASSERT_TRUE(receiver(1).waitLeft());
  EXPECT_EQ(fabric(1).counters().drops.of(wire::Drop::kRefused), 40U);
  const Seen got = seen(1);
  ASSERT_EQ(got.arrivals.size(), 40U);
  for (uint64_t i = 0; i < 40; ++i) {
    EXPECT_EQ(got.arrivals[i].header.step, Step{2 * i});
    EXPECT_TRUE(*got.arrivals[i].bytes == payloads[i % 4]);
  }
}

TEST_P(FabricContract, AReceiverMayRefuseEverything) {
  prepare(1, 2).answer = [](Rank, Lane, const wire::Header&) -> Result<Landing> {
    return Status(Code::kRefused, "no");
  };
  start(2);
  flood(0, 1);
  ASSERT_TRUE(sends_.waitForAll());
  rank(0).closeAndWait();
  ASSERT_TRUE(receiver(1).waitLeft());
  EXPECT_EQ(fabric(1).counters().drops.of(wire::Drop::kRefused), kFloodMessages);
  EXPECT_EQ(fabric(1).counters().messagesReceived, 0U);
}

// The receiver answers other ranks' bytes: a landing with too little room refuses the payload, and
// nothing lands anywhere.
TEST_P(FabricContract, ALandingThatIsTooSmallIsRefusedAndCounted) {
  Completions tooSmall(pace_);
  std::vector<std::byte> little(99, std::byte{7});
  const ReceiptRecorder::Answer answer = [&](Rank, Lane,
                                             const wire::Header& header) -> Result<Landing> {
    switch (index(header.step) % 3) {
      case 0: return Landing{.buffer = {little.data(), little.size()}, .done = tooSmall.expect()};
      case 1: return Landing{.buffer = {nullptr, header.length}, .done = tooSmall.expect()};
      default: return Landing{};
    }
  };
  prepare(0, 2).answer = answer;
  prepare(1, 2).answer = answer;
  start(2);
  const std::vector<std::vector<std::byte>> payloads{pattern(100), pattern(3'000'000),
                                                     pattern(70'000)};
  for (uint64_t i = 0; i < 27; ++i) {
    send(0, 1, payloads[(i / 3) % 3], Lane::kBulk, numbered(i));
    send(0, 0, payloads[(i / 3) % 3], Lane::kBulk, numbered(i));
  }
  for (uint32_t to : {0U, 1U}) {
    ASSERT_TRUE(receiver(to).waitLanded(9));
    const Seen got = seen(to);
    ASSERT_EQ(got.arrivals.size(), 9U);
    for (uint64_t i = 0; i < 9; ++i) EXPECT_TRUE(*got.arrivals[i].bytes == payloads[i % 3]);
    EXPECT_TRUE(got.lost.empty());
    EXPECT_EQ(fabric(to).counters().drops.of(wire::Drop::kNoRoom), 18U);
    EXPECT_EQ(fabric(to).counters().drops.total(), 18U);
    EXPECT_EQ(fabric(to).counters().messagesReceived, 9U);
  }
  ASSERT_TRUE(sends_.waitForAll());
  EXPECT_EQ(sends_.countOf(Code::kOk), 54U);
  ASSERT_TRUE(tooSmall.waitForAll());
  EXPECT_EQ(tooSmall.countOf(Code::kRefused), 36U);
  EXPECT_EQ(little, std::vector<std::byte>(99, std::byte{7}));
}

// ---- Loss ----

TEST_P(FabricContract, ADeadRankFailsWhatIsPendingAndIsNamed) {
  Valve valve;
  prepare(1, 2).answer = through(valve);
  start(2);
  flood(0, 1);
  ASSERT_TRUE(waitUntilAsked(valve));
  rank(1).die();
  ASSERT_TRUE(sends_.waitForAll());
  ASSERT_TRUE(receiver(0).waitLost());
  EXPECT_GT(sends_.countOf(Code::kPeerLost), 0U);
  EXPECT_EQ(sends_.countOf(Code::kPeerLost) + sends_.countOf(Code::kOk), kFloodMessages);
  const Seen got = seen(0);
  ASSERT_EQ(got.lost.size(), 1U);
  EXPECT_EQ(got.lost[0].first, Rank{1});
  EXPECT_EQ(got.lost[0].second.code(), Code::kPeerLost);
  EXPECT_THAT(got.lost[0].second.message(), HasSubstr("rank 1"));
  EXPECT_TRUE(got.left.empty());
}

TEST_P(FabricContract, ASenderThatDiesInMidMessageFailsItsLanding) {
  Watched<int> stage(pace_);  // 1: the header is here; 2: the sender is dead
  prepare(1, 2).answer = [&](Rank, Lane, const wire::Header&) -> Result<Landing> {
    stage.change([](int& now) { now = 1; });
    if (!world().hasThreads())
      rank(0).die();
    else
      EXPECT_TRUE(stage.waitUntil([](int now) { return now == 2; }));
    return Landing{};
  };
  start(2);
  const auto payload = pattern(size_t{64} << 20);
  send(0, 1, payload);
  ASSERT_TRUE(stage.waitUntil([](int now) { return now == 1; }));
  if (world().hasThreads()) rank(0).die();
  EXPECT_TRUE(sends_.waitForAll(0s)) << "the destructor has ended it";
  stage.change([](int& now) { now = 2; });
  ASSERT_TRUE(receiver(1).waitLanded(1));
  ASSERT_TRUE(receiver(1).waitLost());
  const Seen got = seen(1);
  EXPECT_EQ(got.arrivals[0].status.code(), Code::kPeerLost);
  EXPECT_THAT(got.arrivals[0].status.message(), HasSubstr("rank 0"));
  EXPECT_EQ(got.lost.size(), 1U);
}

TEST_P(FabricContract, AReceiverThatDiesInMidMessageFailsTheSend) {
  Watched<int> stage(pace_);
  prepare(1, 2).answer = [&](Rank, Lane, const wire::Header&) -> Result<Landing> {
    stage.change([](int& now) { now = 1; });
    return Landing::later();
  };
  start(2);
  const auto payload = pattern(size_t{64} << 20);
  send(0, 1, payload);
  ASSERT_TRUE(stage.waitUntil([](int now) { return now == 1; }));
  rank(1).die();
  ASSERT_TRUE(sends_.waitForAll());
  EXPECT_EQ(sends_.status().code(), Code::kPeerLost);
  ASSERT_TRUE(receiver(0).waitLost());
}

TEST_P(FabricContract, LossIsStickyAndSaysTheSameEveryTime) {
  start(2);
  const auto payload = pattern(10);
  send(0, 1, payload);
  ASSERT_TRUE(receiver(1).waitLanded(1));
  rank(1).die();
  ASSERT_TRUE(receiver(0).waitLost());
  ASSERT_TRUE(sends_.waitForAll());
  const Status why = seen(0).lost[0].second;
  for (const Lane lane : {Lane::kBulk, Lane::kUrgent, Lane::kControl}) send(0, 1, payload, lane);
  ASSERT_TRUE(sends_.waitForAll());
  for (size_t i = 1; i < 4; ++i) EXPECT_EQ(sends_.status(i), why);
  rank(0).settle();
  EXPECT_EQ(seen(0).lost.size(), 1U);
}

TEST_P(FabricContract, LossIsToldOnceThoughManyLanesBreak) {
  start(2);
  const auto payload = pattern(1000);
  for (const Lane lane : {Lane::kBulk, Lane::kUrgent, Lane::kControl}) {
    send(0, 1, payload, lane);
    send(1, 0, payload, lane);
  }
  ASSERT_TRUE(receiver(0).waitLanded(3));
  ASSERT_TRUE(receiver(1).waitLanded(3));
  ASSERT_TRUE(sends_.waitForAll());
  rank(1).die();
  ASSERT_TRUE(receiver(0).waitLost());
  world().pass(kMoment);
  EXPECT_EQ(seen(0).lost.size(), 1U);
}

TEST_P(FabricContract, LossOfOneLeavesTheOthersAlone) {
  start(4);
  const auto payload = pattern(100'000);
  for (uint32_t from = 0; from < 3; ++from) send(from, 3, payload);
  ASSERT_TRUE(receiver(3).waitLanded(3));
  rank(3).die();
  for (uint32_t i = 0; i < 3; ++i) ASSERT_TRUE(receiver(i).waitLost());
  for (uint32_t from = 0; from < 3; ++from) {
    for (uint32_t to = 0; to < 3; ++to) send(from, to, payload);
  }
  for (uint32_t i = 0; i < 3; ++i) ASSERT_TRUE(receiver(i).waitLanded(3));
  ASSERT_TRUE(sends_.waitForAll());
  EXPECT_EQ(sends_.countOf(Code::kOk), 12U);
}

TEST_P(FabricContract, ARankThatIsGoneBeforeTheFirstMessageIsLost) {
  start(2);
  rank(1).die();
  send(0, 1, pattern(10));
  ASSERT_TRUE(sends_.waitForAll());
  EXPECT_EQ(sends_.status().code(), Code::kPeerLost);
  EXPECT_THAT(sends_.status().message(), HasSubstr("rank 1"));
  ASSERT_TRUE(receiver(0).waitLost());
}

TEST_P(FabricContract, CompletionsComeBeforeTheNewsOfTheLoss) {
  Valve valve;
  prepare(1, 2).answer = through(valve);
  start(2);
  std::atomic<int> toldTooEarly{0};
  const auto payload = pattern(kFloodBytes);
  for (size_t i = 0; i < 16; ++i) {
    send(0, 1, payload, Lane::kBulk, {}, [&](const Status&) {
      if (!seen(0).lost.empty()) ++toldTooEarly;
    });
  }
  ASSERT_TRUE(waitUntilAsked(valve));
  rank(0).settle();  // its loop has taken all 16 before the news can come
  rank(1).die();
  ASSERT_TRUE(receiver(0).waitLost());
  ASSERT_TRUE(sends_.waitForAll());
  EXPECT_EQ(toldTooEarly, 0);
}

TEST_P(FabricContract, GivingUpOnARankEndsWhatIsPendingWithTheReason) {
  Valve valve;
  prepare(1, 2).answer = through(valve);
  start(2);
  flood(0, 1);
  ASSERT_TRUE(waitUntilAsked(valve));
  fabric(0).giveUp(Rank{1}, Status(Code::kTimeout, "silent for 2 s"));
  fabric(0).giveUp(Rank{1}, Status(Code::kTimeout, "a second reason"));
  fabric(0).giveUp(Rank{55}, Status(Code::kTimeout, "nobody"));
  ASSERT_TRUE(sends_.waitForAll());
  ASSERT_TRUE(receiver(0).waitLost());
  rank(0).settle();
  const Seen got = seen(0);
  ASSERT_EQ(got.lost.size(), 1U);
  EXPECT_EQ(got.lost[0].second.code(), Code::kPeerLost);
  EXPECT_THAT(got.lost[0].second.message(), HasSubstr("rank 1"));
  EXPECT_THAT(got.lost[0].second.message(), HasSubstr("silent for 2 s"));
  EXPECT_TRUE(receiver(1).waitLost()) << "the other side hears of it by the broken connection";
}

TEST_P(FabricContract, ARankGivenUpWhileItSendsFailsItsLanding) {
  Watched<int> stage(pace_);
  prepare(1, 2).answer = [&](Rank, Lane, const wire::Header& header) -> Result<Landing> {
    if (header.length == 0) return Landing{};
    fabric(1).giveUp(Rank{0}, Status(Code::kTimeout, "too slow"));
    return Landing{};
  };
  start(2);
  const auto payload = pattern(size_t{64} << 20);
  send(0, 1, payload);
  ASSERT_TRUE(receiver(1).waitLanded(1));
  ASSERT_TRUE(receiver(1).waitLost());
  ASSERT_TRUE(sends_.waitForAll());
  EXPECT_EQ(seen(1).lost.size(), 1U);
}

// ---- Goodbye ----

TEST_P(FabricContract, AGoodbyeIsNotALoss) {
  start(2);
  const auto payload = pattern(10);
  send(0, 1, payload);
  send(1, 0, payload);
  ASSERT_TRUE(receiver(0).waitLanded(1));
  ASSERT_TRUE(receiver(1).waitLanded(1));
  rank(1).closeAndWait();
  ASSERT_TRUE(receiver(0).waitLeft());
  rank(1).die();
  send(0, 1, payload);
  ASSERT_TRUE(sends_.waitForAll());
  EXPECT_EQ(sends_.status(2).code(), Code::kUnavailable);
  EXPECT_THAT(sends_.status(2).message(), HasSubstr("rank 1"));
  world().pass(kMoment);
  EXPECT_TRUE(seen(0).lost.empty());
  EXPECT_EQ(seen(0).left.size(), 1U);
}

TEST_P(FabricContract, ARankThatOnlySentSaysGoodbye) {
  start(2);
  send(0, 1, pattern(10));
  ASSERT_TRUE(receiver(1).waitLanded(1));
  rank(0).closeAndWait();
  ASSERT_TRUE(receiver(1).waitLeft());
  rank(0).die();
  world().pass(kMoment);
  EXPECT_TRUE(seen(1).lost.empty());
  ASSERT_TRUE(sends_.waitForAll());
}

TEST_P(FabricContract, ARankThatOnlyReceivedSaysGoodbye) {
  start(2);
  send(0, 1, pattern(10));
  ASSERT_TRUE(receiver(1).waitLanded(1));
  ASSERT_TRUE(sends_.waitForAll());
  rank(1).closeAndWait();
  ASSERT_TRUE(receiver(0).waitLeft());
  rank(1).die();
  world().pass(kMoment);
  EXPECT_TRUE(seen(0).lost.empty());
  EXPECT_EQ(seen(0).left, std::vector<Rank>{Rank{1}});
}

TEST_P(FabricContract, TheGoodbyeComesAfterTheLastMessage) {
  start(2);
  std::atomic<size_t> landed{0};
  receiver(1).onLanded = [&](Rank, Lane, const wire::Header&) {
    EXPECT_TRUE(seen(1).left.empty());
    ++landed;
  };
  const auto payload = pattern(1 << 20);
  for (uint64_t i = 0; i < 30; ++i) {
    for (const Lane lane : {Lane::kBulk, Lane::kUrgent, Lane::kControl})
      send(0, 1, payload, lane, numbered(i));
  }
  rank(0).closeAndWait();
  ASSERT_TRUE(receiver(1).waitLeft());
  EXPECT_EQ(landed, 90U);
  ASSERT_TRUE(sends_.waitForAll());
  EXPECT_EQ(sends_.countOf(Code::kOk), 90U);
}

TEST_P(FabricContract, AllMayCloseAtOnce) {
  start(4);
  const auto payload = pattern(200'000);
  for (uint32_t from = 0; from < 4; ++from) {
    for (uint32_t to = 0; to < 4; ++to) send(from, to, payload);
  }
  for (uint32_t i = 0; i < 4; ++i) ASSERT_TRUE(receiver(i).waitLanded(4));
  Completions closes(pace_);
  for (uint32_t i = 0; i < 4; ++i) fabric(i).close(closes.expect());
  ASSERT_TRUE(closes.waitForAll());
  EXPECT_EQ(closes.countOf(Code::kOk), 4U);
  for (uint32_t i = 0; i < 4; ++i) EXPECT_TRUE(seen(i).lost.empty());
}

TEST_P(FabricContract, WhatIsSentToOneWhoClosesIsUnavailableNotLost) {
  start(2);
  Valve valve;
  receiver(1).answer = through(valve);
  flood(0, 1);
  ASSERT_TRUE(waitUntilAsked(valve));
  rank(1).closeAndWait();
  ASSERT_TRUE(receiver(0).waitLeft());
  ASSERT_TRUE(sends_.waitForAll());
  EXPECT_GT(sends_.countOf(Code::kUnavailable), 0U);
  EXPECT_EQ(sends_.countOf(Code::kPeerLost), 0U);
  EXPECT_TRUE(seen(0).lost.empty());
}

// ---- Closing ----

TEST_P(FabricContract, CloseSendsWhatIsQueued) {
  start(2);
  const auto payload = pattern(1 << 20);
  for (uint64_t i = 0; i < 16; ++i) send(0, 1, payload);
  Completions closes(pace_);
  fabric(0).close(closes.expect());
  ASSERT_TRUE(receiver(1).waitLanded(16U));
  ASSERT_TRUE(closes.waitForAll());
  ASSERT_TRUE(sends_.waitForAll());
  EXPECT_TRUE(closes.status().isOk()) << closes.status().toString();
  EXPECT_EQ(sends_.countOf(Code::kOk), 16U);
}

TEST_P(FabricContract, CloseOfAFabricThatNeverSpoke) {
  start(2);
  Completions closes(pace_);
  fabric(0).close(closes.expect());
  ASSERT_TRUE(closes.waitForAll());
  EXPECT_TRUE(closes.status().isOk());
  EXPECT_TRUE(seen(1).left.empty());
}

TEST_P(FabricContract, ClosingTwiceCompletesTwice) {
  start(2);
  send(0, 1, pattern(10));
  Completions closes(pace_);
  fabric(0).close(closes.expect());
  fabric(0).close(closes.expect());
  ASSERT_TRUE(closes.waitForAll());
  fabric(0).close(closes.expect());
  ASSERT_TRUE(closes.waitForAll());
  ASSERT_TRUE(sends_.waitForAll());
}

TEST_P(FabricContract, ASendAfterCloseIsCancelled) {
  start(2);
  Completions closes(pace_);
  fabric(0).close(closes.expect());
  send(0, 1, pattern(10));
  ASSERT_TRUE(closes.waitForAll());
  send(0, 1, pattern(10));
  send(0, 0, pattern(10));
  ASSERT_TRUE(sends_.waitForAll());
  EXPECT_EQ(sends_.countOf(Code::kCancelled), 3U);
  EXPECT_TRUE(seen(1).arrivals.empty());
}

TEST_P(FabricContract, CloseDoesNotWaitForeverForOneWhoDoesNotRead) {
  Valve valve;
  prepare(1, 2).answer = through(valve);
  start(2);
  flood(0, 1);
  ASSERT_TRUE(waitUntilAsked(valve));
  Completions closes(pace_);
  fabric(0).close(closes.expect());
  ASSERT_TRUE(closes.waitForAll());
  EXPECT_EQ(closes.status().code(), Code::kTimeout);
  ASSERT_TRUE(sends_.waitForAll());
  EXPECT_GT(sends_.countOf(Code::kCancelled), 0U);
}

// The whole takes longer than any engine's deadline here, and each pause is far shorter. A machine
// that holds this process up for a deadline makes a pause that ends the close rightly: nothing is
// learnt from such a run.
TEST_P(FabricContract, CloseGoesOnAsLongAsOthersTake) {
  constexpr auto kAtLeast = 2500ms;
  constexpr auto kShortestDeadline = 1000ms;
  constexpr size_t kMessages = 60;
  std::atomic<bool> mayTake{false};
  prepare(1, 2).answer = [&](Rank, Lane, const wire::Header&) -> Result<Landing> {
    return mayTake.exchange(false) ? Landing{} : Landing::later();
  };
  start(2);
  const auto& payload = keep(pattern(1 << 20));
  for (uint64_t i = 0; i < kMessages; ++i) send(0, 1, payload, Lane::kBulk, numbered(i));
  Completions closes(pace_);
  const auto begun = world().now();
  std::atomic closedAt{begun};
  fabric(0).close(closes.expect([&](const Status&) { closedAt = world().now(); }));
  auto lastTaken = begun;
  for (size_t i = 0; i < kMessages; ++i) {
    world().pass(kAtLeast / kMessages + 1ms);
    mayTake = true;
    fabric(1).resume(Rank{0}, Lane::kBulk);
    const bool taken = receiver(1).waitLanded(i + 1);
    if (!taken && closedAt.load() - lastTaken >= kShortestDeadline)
      GTEST_SKIP() << "the machine held this test up";
    ASSERT_TRUE(taken);
    lastTaken = world().now();
  }
  ASSERT_TRUE(closes.waitForAll());
  EXPECT_GE(world().now() - begun, kAtLeast);
  EXPECT_TRUE(closes.status().isOk()) << closes.status().toString();
  ASSERT_TRUE(receiver(1).waitLeft());
  EXPECT_EQ(sends_.countOf(Code::kOk), kMessages);
}

TEST_P(FabricContract, ACompletionMayClose) {
  start(2);
  Completions closes(pace_);
  send(0, 1, pattern(10), Lane::kBulk, {},
       [&](const Status&) { fabric(0).close(closes.expect()); });
  ASSERT_TRUE(sends_.waitForAll());
  ASSERT_TRUE(closes.waitForAll());
  EXPECT_TRUE(closes.status().isOk());
  ASSERT_TRUE(receiver(1).waitLeft());
}

TEST_P(FabricContract, AReceiverMayCloseWhileItReceives) {
  Completions closes(pace_);
  std::atomic<int> asked{0};
  prepare(1, 2).answer = [&](Rank, Lane, const wire::Header&) -> Result<Landing> {
    if (++asked == 3) fabric(1).close(closes.expect());
    return Landing{};
  };
  start(2);
  flood(0, 1);
  ASSERT_TRUE(sends_.waitForAll());
  ASSERT_TRUE(closes.waitForAll());
  ASSERT_TRUE(receiver(0).waitLeft());
  EXPECT_TRUE(seen(0).lost.empty());
}

TEST_P(FabricContract, DestructionEndsWhatIsPending) {
  Valve valve;
  prepare(1, 2).answer = through(valve);
  start(2);
  flood(0, 1);
  ASSERT_TRUE(waitUntilAsked(valve));
  rank(0).die();
  EXPECT_TRUE(sends_.waitForAll(0s));
  EXPECT_GT(sends_.countOf(Code::kCancelled), 0U);
  EXPECT_EQ(sends_.countOf(Code::kCancelled) + sends_.countOf(Code::kOk), kFloodMessages);
  ASSERT_TRUE(receiver(1).waitLost());
}

TEST_P(FabricContract, DestructionRightAfterSendingEndsEverything) {
  start(2);
  flood(0, 1);
  flood(1, 0);
  rank(0).die();
  rank(1).die();
  EXPECT_TRUE(sends_.waitForAll(0s));
}

TEST_P(FabricContract, DestructionWhileClosingEndsTheClose) {
  Valve valve;
  prepare(1, 2).answer = through(valve);
  start(2);
  flood(0, 1);
  ASSERT_TRUE(waitUntilAsked(valve));
  Completions closes(pace_);
  fabric(0).close(closes.expect());
  rank(0).die();
  EXPECT_TRUE(closes.waitForAll(0s));
  EXPECT_TRUE(sends_.waitForAll(0s));
}

// ---- Counters and idling ----

TEST_P(FabricContract, CountersAddUp) {
  start(2);
  const auto payload = pattern(1000);
  for (int i = 0; i < 10; ++i) send(0, 1, payload);
  ASSERT_TRUE(receiver(1).waitLanded(10));
  ASSERT_TRUE(sends_.waitForAll());
  rank(0).settle();
  rank(1).settle();
  const Counters sent = fabric(0).counters();
  const Counters received = fabric(1).counters();
  EXPECT_EQ(sent.messagesSent, 10U);
  EXPECT_EQ(sent.bytesSent, 10'000U);
  EXPECT_EQ(received.messagesReceived, 10U);
  EXPECT_EQ(received.bytesReceived, 10'000U);
  EXPECT_EQ(received.drops.total(), 0U);
  EXPECT_EQ(received.strangers, 0U);
  EXPECT_EQ(fabric(0).rank(), Rank{0});
  EXPECT_EQ(fabric(0).worldSize(), 2U);
  EXPECT_EQ(&fabric(0).loop(), &rank(0).loop);
}

TEST_P(FabricContract, ItIsKnownWhenARankWasLastHeard) {
  start(2);
  const auto lastHeard = [&] {
    Watched<std::pair<bool, std::optional<TimePoint>>> answer(pace_);
    rank(1).loop.post([&] {
      const auto heard = fabric(1).lastHeard(Rank{0});
      answer.change([&](auto& value) { value = {true, heard}; });
    });
    EXPECT_TRUE(answer.waitUntil([](const auto& value) { return value.first; }));
    return answer.get().second;
  };
  EXPECT_FALSE(lastHeard().has_value());
  const TimePoint before = rank(1).loop.now();
  send(0, 1, pattern(10));
  ASSERT_TRUE(receiver(1).waitLanded(1));
  ASSERT_TRUE(sends_.waitForAll());
  ASSERT_TRUE(lastHeard().has_value());
  EXPECT_GE(*lastHeard(), before);
  EXPECT_LE(*lastHeard(), rank(1).loop.now());
}

TEST_P(FabricContract, AnIdleFabricSleeps) {
  Valve valve;
  prepare(1, 2).answer = through(valve);
  start(2);
  if (!world().hasThreads()) GTEST_SKIP() << "ranks of this world have no thread that could poll";
  flood(0, 1);  // even with a backlog that cannot move
  ASSERT_TRUE(waitUntilAsked(valve));
  world().pass(kMoment);
  const auto cpuOf = [&](uint32_t i) {
    Watched<Duration> cpu(pace_);
    rank(i).loop.post([&] { cpu.change([](Duration& value) { value = base::threadCpuTime(); }); });
    EXPECT_TRUE(cpu.waitUntil([](Duration value) { return value != Duration::zero(); }));
    return cpu.get();
  };
  const Duration before = cpuOf(0) + cpuOf(1);
  world().pass(300ms);
  EXPECT_LT(cpuOf(0) + cpuOf(1) - before,
            150ms);  // a thread that polls would have used most of 300
}

}  // namespace sluice::fabric::contract
