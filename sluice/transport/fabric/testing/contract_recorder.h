// The contract suite's view of the ranks: a receiver that keeps all messages, and completions that
// are counted. For tests of fabric engines only.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <sluice/base/mutex.h>
#include <sluice/transport/fabric/testing/contract_world.h>

namespace sluice::fabric::contract {

inline constexpr auto kPatience =
    std::chrono::seconds(30);  // no case waits longer for what must come
inline constexpr auto kMoment = std::chrono::milliseconds(60);  // for what must not come

// A value that ranks set and a test waits for.
template <typename T>
class Watched final {
 public:
  explicit Watched(const Pace& pace = kThreads) : pace_(pace) {}

  template <typename F>
  void change(F&& f) {
    base::Lock lock(mutex_);
    f(value_);
    changed_.notifyAll();  // under the lock: a waiter may destroy this as soon as it has the lock
  }
  template <typename Holds>
  [[nodiscard]] bool waitUntil(Holds&& holds, Duration patience = kPatience) {
    if (pace_.world != nullptr) {
      return pace_.world->runUntil(
          [&] {
            base::Lock lock(mutex_);
            return holds(value_);
          },
          patience);
    }
    base::Lock lock(mutex_);
    return changed_.waitUntil(mutex_, std::chrono::steady_clock::now() + patience,
                              [&]() SLUICE_NO_THREAD_SAFETY_ANALYSIS { return holds(value_); });
  }
  T get() {
    base::Lock lock(mutex_);
    return value_;
  }

 private:
  const Pace& pace_;
  base::Mutex mutex_;
  base::Condition changed_;
  T value_ SLUICE_GUARDED_BY(mutex_){};
};

// Hands out completions and sees to it that each runs exactly once. Must outlive the fabrics it is
// used with.
class Completions final {
 public:
  struct Ending {
    int calls = 0;
    Status status;
  };

  explicit Completions(const Pace& pace = kThreads) : endings_(pace) {}

  // The next completion; `then` runs inside it.
  Done expect(Done then = nullptr) {
    size_t index = 0;
    endings_.change([&](Endings& endings) {
      index = endings.all.size();
      endings.all.emplace_back();
    });
    return [this, index, then = std::move(then)](const Status& status) {
      if (then) then(status);
      endings_.change([&](Endings& endings) {
        if (++endings.all[index].calls == 1) ++endings.ended;
        endings.all[index].status = status;
      });
    };
  }

  [[nodiscard]] bool waitForAll(Duration patience = kPatience) {
    return endings_.waitUntil(
        [](const Endings& endings) { return endings.ended == endings.all.size(); }, patience);
  }
  size_t ended() { return endings_.get().ended; }
  Status status(size_t index = 0) { return endings_.get().all.at(index).status; }
  size_t countOf(Code code) {
    size_t count = 0;
    for (const Ending& ending : endings_.get().all) {
      count += ending.calls > 0 && ending.status.code() == code ? 1 : 0;
    }
    return count;
  }

  ~Completions() {
    size_t index = 0;
    for (const Ending& ending : endings_.get().all) {
      EXPECT_EQ(ending.calls, 1) << "completion " << index << " must run exactly once";
      ++index;
    }
  }

 private:
  struct Endings {
    std::vector<Ending> all;
    size_t ended = 0;  // with one call at least
  };
  Watched<Endings> endings_;
};

struct Arrival {
  Rank from{};
  Lane lane{};
  wire::Header header;
  std::shared_ptr<std::vector<std::byte>> bytes;
  int endings = 0;  // calls of the landing's done
  Status status;
};

struct Seen {
  std::deque<Arrival> arrivals;
  std::vector<std::pair<Rank, Status>> lost;
  std::vector<Rank> left;
  size_t landed = 0;  // arrivals whose done was called
};

// Lands every message in memory of its own and remembers it, unless `answer` says otherwise.
class ReceiptRecorder final : public Receiver {
 public:
  explicit ReceiptRecorder(const Pace& pace = kThreads) : seen(pace) {}

  using Answer = std::function<Result<Landing>(Rank, Lane, const wire::Header&)>;

  // Set before the first message comes; an error or later() is passed on, an empty Landing means
  // the default.
  Answer answer;
  std::function<void(Rank, Lane, const wire::Header&)> onLanded;
  Loop* loop = nullptr;

  Result<Landing> onMessage(Rank from, Lane lane, const wire::Header& header) override {
    EXPECT_TRUE(loop->inLoop());
    if (answer) {
      auto given = answer(from, lane, header);
      if (!given.isOk() || given->isLater || given->done) return given;
    }
    return land(from, lane, header);
  }

  Landing land(Rank from, Lane lane, const wire::Header& header) {
    const auto bytes = std::make_shared<std::vector<std::byte>>(header.length);
    size_t index = 0;
    seen.change([&](Seen& all) {
      index = all.arrivals.size();
      all.arrivals.push_back({from, lane, header, bytes, 0, {}});
    });
    Landing landing;
    landing.buffer = {bytes->data(), bytes->size()};
    landing.done = [this, index, from, lane, header](const Status& status) {
      EXPECT_TRUE(loop->inLoop());
      if (status.isOk() && onLanded) onLanded(from, lane, header);
      seen.change([&](Seen& all) {
        if (++all.arrivals[index].endings == 1) ++all.landed;
        all.arrivals[index].status = status;
      });
    };
    return landing;
  }

  void onPeerLost(Rank from, const Status& why) override {
    EXPECT_TRUE(loop->inLoop());
    seen.change([&](Seen& all) { all.lost.emplace_back(from, why); });
  }
  void onPeerLeft(Rank from) override {
    EXPECT_TRUE(loop->inLoop());
    seen.change([&](Seen& all) { all.left.push_back(from); });
  }

  [[nodiscard]] bool waitLanded(size_t count) {
    return seen.waitUntil([&](const Seen& all) { return all.landed >= count; });
  }
  [[nodiscard]] bool waitLost() {
    return seen.waitUntil([](const Seen& all) { return !all.lost.empty(); });
  }
  [[nodiscard]] bool waitLeft(size_t count = 1) {
    return seen.waitUntil([&](const Seen& all) { return all.left.size() >= count; });
  }

  ~ReceiptRecorder() override {
    for (const Arrival& arrival : seen.get().arrivals) {
      EXPECT_EQ(arrival.endings, 1) << "the landing of " << arrival.header.toString();
    }
  }

  Watched<Seen> seen;
};

// One rank of a world: its receiver and its fabric.
class RankUnderTest final {
 public:
  RankUnderTest(World& itsWorld, const Pace& pace, size_t number)
      : receiver(pace), loop(itsWorld.loop(number)), world_(itsWorld), pace_(pace) {
    receiver.loop = &loop;
  }

  void closeAndWait() {
    Watched<int> closed(pace_);
    fabric->close([&](const Status&) { closed.change([](int& count) { ++count; }); });
    EXPECT_TRUE(closed.waitUntil([](int count) { return count == 1; }));
  }
  void die() { world_.destroy(fabric); }  // no goodbye: the others see a crash

  // Returns when everything posted to the loop before has run.
  void settle() {
    Watched<bool> ran(pace_);
    loop.post([&] { ran.change([](bool& yes) { yes = true; }); });
    EXPECT_TRUE(ran.waitUntil([](bool yes) { return yes; }));
  }

  ReceiptRecorder receiver;
  Loop& loop;
  std::unique_ptr<Fabric> fabric;

 private:
  World& world_;
  const Pace& pace_;
};

// A rank with a thread of its own, for tests of one engine; torn down from the end.
struct ThreadRank {
  ReceiptRecorder receiver;
  net::LoopThread thread{"rank"};
  std::unique_ptr<Fabric> fabric;
};

inline std::vector<std::byte> pattern(size_t bytes, uint32_t seed = 1) {
  std::vector<std::byte> data(bytes);
  uint64_t state = seed * 0x9e3779b97f4a7c15U + 1;
  for (auto& byte : data) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    byte = static_cast<std::byte>(state >> 56);
  }
  return data;
}

inline ConstBuffer view(const std::vector<std::byte>& bytes) {
  return {bytes.data(), bytes.size()};
}

}  // namespace sluice::fabric::contract
