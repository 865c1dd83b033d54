// The contract of fabric.h as a suite. Its cases are in contract_suite.cc, compiled once as
// sluice_fabric_contract. Every engine's test links that, includes this and instantiates it:
//
//   INSTANTIATE_TEST_SUITE_P(Tcp, FabricContract,
//                            testing::Values(EngineCase{"plain", makeTcp}), caseName);
//
// The ranks of a case live in this process, in a world of threads or in one that the case steps
// (contract_world.h), and talk over loopback.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sluice/transport/fabric/testing/contract_recorder.h>

namespace sluice::fabric::contract {

using namespace std::chrono_literals;
using testing::HasSubstr;

class FabricContract : public testing::TestWithParam<EngineCase> {
 protected:
  // Makes `count` ranks; call once, after preparing receivers with prepare().
  void start(size_t count) {
    if (ranks_.empty()) makeRanks(count);
    for (uint32_t i = 0; i < count; ++i) {
      ranks_[i]->fabric = engine_->make(Rank{i}, ranks_[i]->receiver);
    }
  }
  // Returns the receiver of a rank before anything can come. REQUIRES: the same count in start().
  ReceiptRecorder& prepare(uint32_t i, size_t count) {
    if (ranks_.empty()) makeRanks(count);
    return ranks_[i]->receiver;
  }

  World& world() { return engine_->world(); }
  RankUnderTest& rank(uint32_t i) { return *ranks_[i]; }
  Fabric& fabric(uint32_t i) { return *ranks_[i]->fabric; }
  ReceiptRecorder& receiver(uint32_t i) { return ranks_[i]->receiver; }
  Seen seen(uint32_t i) { return ranks_[i]->receiver.seen.get(); }

  void send(uint32_t from, uint32_t to, const std::vector<std::byte>& payload,
            Lane lane = Lane::kBulk, Message message = {}, Done then = nullptr) {
    fabric(from).send(Rank{to}, lane, message, view(payload), sends_.expect(std::move(then)));
  }
  // A payload that nobody else keeps is kept here until the ranks are gone.
  void send(uint32_t from, uint32_t to, std::vector<std::byte>&& payload, Lane lane = Lane::kBulk,
            Message message = {}, Done then = nullptr) {
    send(from, to, keep(std::move(payload)), lane, message, std::move(then));
  }
  static Message numbered(uint64_t step) {
    Message message;
    message.step = Step{step};
    return message;
  }
  // The steps that `to` has heard of from `from` on `lane`, in the order of the headers.
  std::vector<uint64_t> stepsSeen(uint32_t to, uint32_t from, Lane lane) {
    std::vector<uint64_t> steps;
    for (const Arrival& arrival : seen(to).arrivals) {
      if (arrival.from == Rank{from} && arrival.lane == lane)
        steps.push_back(index(arrival.header.step));
    }
    return steps;
  }
  static std::vector<uint64_t> firstNumbers(uint64_t count) {
    std::vector<uint64_t> numbers(count);
    for (uint64_t i = 0; i < count; ++i) numbers[i] = i;
    return numbers;
  }
  // A receiver that says later() while `closed` is set.
  struct Valve {
    std::atomic<bool> closed{true};
    std::atomic<int> asked{0};
  };
  static ReceiptRecorder::Answer through(Valve& valve) {
    return [&valve](Rank, Lane, const wire::Header&) -> Result<Landing> {
      ++valve.asked;
      return valve.closed ? Landing::later() : Landing{};
    };
  }
  [[nodiscard]] bool waitUntilAsked(const Valve& valve) {
    return world().runUntil([&] { return valve.asked > 0; }, kPatience);
  }
  // Many more bytes than sockets, pipes and queues of an engine may hold, so that not all can be
  // under way.
  static constexpr size_t kFloodMessages = 64;
  static constexpr size_t kFloodBytes = size_t{4} << 20;
  // Keeps a payload that may still be on its way when a test ends.
  const std::vector<std::byte>& keep(std::vector<std::byte> payload) {
    return kept_.emplace_back(std::move(payload));
  }

  void flood(uint32_t from, uint32_t to, Lane lane = Lane::kBulk) {
    if (flood_.empty()) flood_ = pattern(kFloodBytes);
    for (size_t i = 0; i < kFloodMessages; ++i) send(from, to, flood_, lane, numbered(i));
  }

  void TearDown() override {
    for (auto& each : ranks_) {
      if (each->fabric) each->die();
    }
    for (auto& each : ranks_) each->settle();
    EXPECT_TRUE(sends_.waitForAll(0s)) << "a destroyed fabric leaves no completion behind";
  }

  Pace pace_;
  Completions sends_{pace_};

 private:
  void makeRanks(size_t count) {
    engine_ = GetParam().makeEngine(count);
    if (!world().hasThreads()) pace_.world = &world();
    for (size_t i = 0; i < count; ++i)
      ranks_.push_back(std::make_unique<RankUnderTest>(world(), pace_, i));
  }
  std::deque<std::vector<std::byte>> kept_;  // declared first: outlives the ranks
  std::vector<std::byte> flood_;
  std::vector<std::unique_ptr<RankUnderTest>> ranks_;
  std::unique_ptr<Engine> engine_;  // its loops end before the receivers
};

inline std::string caseName(const testing::TestParamInfo<EngineCase>& info) {
  return info.param.name;
}

}  // namespace sluice::fabric::contract
