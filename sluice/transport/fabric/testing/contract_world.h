// The two kinds of world in which the contract suite (contract_suite.h) runs an engine. In one
// every rank has a loop thread. In the other the test steps all loops, one task at a time, and
// moves the clock when nothing is left to run: a case takes no real time and is the same in every
// run.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <sluice/base/net/epoll_loop.h>
#include <sluice/base/testing/manual_loop.h>
#include <sluice/transport/fabric/fabric.h>

namespace sluice::fabric::contract {

class World {
 public:
  virtual ~World() = default;

  virtual bool hasThreads() const = 0;
  virtual Loop& loop(size_t rank) = 0;
  virtual TimePoint now() const = 0;

  // Lets the ranks run until `holds()`, or until `patience` has passed. Returns true iff it holds.
  virtual bool runUntil(const std::function<bool()>& holds, Duration patience) = 0;

  // Destroys a fabric as its owner would: from another thread, or on its loop.
  virtual void destroy(std::unique_ptr<Fabric>& fabric) = 0;

  void pass(Duration time) {
    (void)runUntil([] { return false; }, time);
  }
};

// Tells waits how to let the ranks run: `world` is null where the ranks have threads.
struct Pace {
  World* world = nullptr;
};
inline constexpr Pace kThreads;

class ThreadWorld final : public World {
 public:
  explicit ThreadWorld(size_t ranks) {
    for (size_t i = 0; i < ranks; ++i) threads_.emplace_back("rank");
  }

  bool hasThreads() const override { return true; }
  net::EpollLoop& loop(size_t rank) override { return threads_[rank].loop(); }
  TimePoint now() const override { return base::RealClock().now(); }
  bool runUntil(const std::function<bool()>& holds, Duration patience) override {
    const TimePoint end = now() + patience;
    while (!holds()) {
      if (now() >= end) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    return true;
  }
  void destroy(std::unique_ptr<Fabric>& fabric) override { fabric.reset(); }

 private:
  std::deque<net::LoopThread> threads_;
};

class SteppedFabrics final : public World {
 public:
  explicit SteppedFabrics(size_t ranks) : loops_(ranks) {}

  bool hasThreads() const override { return false; }
  base::ManualLoop& loop(size_t rank) override { return loops_[rank]; }
  TimePoint now() const override { return loops_.front().now(); }
  bool runUntil(const std::function<bool()>& holds, Duration patience) override {
    const TimePoint end = now() + patience;
    while (!holds()) {
      if (!runOneOfEach() && !moveClocks(end)) return false;
    }
    return true;
  }
  void destroy(std::unique_ptr<Fabric>& fabric) override {
    auto& loop = static_cast<base::ManualLoop&>(fabric->loop());
    loop.post([&fabric] { fabric.reset(); });
    loop.runReady();
  }

 private:
  bool runOneOfEach() {
    bool ran = false;
    for (base::ManualLoop& loop : loops_) ran = loop.runOne() || ran;
    return ran;
  }
  // Moves all clocks to the next timer; false if the end comes first.
  bool moveClocks(TimePoint end) {
    TimePoint next = end;
    for (const base::ManualLoop& loop : loops_) {
      if (const auto due = loop.nextDue()) next = std::min(next, *due);
    }
    const Duration step = next - now();
    for (base::ManualLoop& loop : loops_) loop.stall(step);
    return next < end;
  }

  std::deque<base::ManualLoop> loops_;
};

// One job of an engine under test: makes the fabric of each rank, on that rank's loop in its world.
// Things that the ranks share (a hub, the listening sockets) are made with it.
class Engine {
 public:
  virtual ~Engine() = default;
  virtual World& world() = 0;
  virtual std::unique_ptr<Fabric> make(Rank rank, Receiver& receiver) = 0;
};

struct EngineCase {
  std::string name;
  // REQUIRES of the engine: it gives up closing after at most two seconds or so.
  std::function<std::unique_ptr<Engine>(size_t worldSize)> makeEngine;
};

}  // namespace sluice::fabric::contract
