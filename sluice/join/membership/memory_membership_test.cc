#include <sluice/join/membership/testing/memory_membership.h>

#include <deque>
#include <map>

#include <sluice/base/random.h>
#include <sluice/base/testing/manual_loop.h>
#include <sluice/base/testing/short_tests.h>
#include <sluice/join/membership/testing/contract_suite.h>

namespace sluice::membership {
namespace {

using namespace std::chrono_literals;
using contract::StoreCase;
using contract::StoreUnderTest;

class MemoryStore final : public StoreUnderTest {
 public:
  explicit MemoryStore(const MemoryFaults& faults) { table_->setFaults(faults); }

  void onLoop(const Task& task) override {
    bool ran = false;
    loop_.post([&] {
      task();
      ran = true;
    });
    while (!ran) loop_.runOne();
  }
  bool runUntil(const std::function<bool()>& holds, Duration patience) override {
    const TimePoint end = loop_.now() + patience;
    while (true) {
      bool isTrue = false;
      onLoop([&] { isTrue = holds(); });
      if (isTrue) return true;
      if (loop_.runOne()) continue;
      const auto due = loop_.nextDue();
      if (!due || *due > end) {
        loop_.advance(end - loop_.now());
        return false;
      }
      (void)loop_.advanceToNextTimer();
    }
  }
  TimePoint now() override { return loop_.now(); }
  std::unique_ptr<Membership> make(const StoreOptions& options) override {
    return makeMemoryMembership(loop_, table_, options).membership;
  }
  void put(const std::string& key, const std::string& value) override { table_->put(key, value); }
  void remove(const std::string& key) override { table_->remove(key); }
  std::optional<std::string> get(const std::string& key) override { return table_->get(key); }
  void endLeases() override { table_->endLeases(); }
  void setAvailable(bool isAvailable) override {
    table_->setUnavailable(isAvailable ? "" : "the table is away");
  }

 private:
  base::ManualLoop loop_;
  const std::shared_ptr<MemoryTable> table_ = std::make_shared<MemoryTable>();
};

StoreCase memoryCase(const std::string& name, const MemoryFaults& faults) {
  return {name, [faults] { return std::make_unique<MemoryStore>(faults); }};
}

}  // namespace

namespace contract {

INSTANTIATE_TEST_SUITE_P(Memory, MembershipContract,
                         testing::Values(memoryCase("plain", {}),
                                         memoryCase("slow", {.seed = 1, .longestDelay = 50ms}),
                                         memoryCase("lossy", {.seed = 2,
                                                              .longestDelay = 20ms,
                                                              .lostAnswers = 0.5,
                                                              .lostNotices = 0.5})),
                         caseName);

}  // namespace contract

namespace {

// A few members propose at random times over a bad table, and some are cut off for a while.
class StoreSchedule final {
 public:
  explicit StoreSchedule(uint64_t seed) : seed_(seed) {
    table_->setFaults({.seed = seed, .longestDelay = 30ms, .lostAnswers = 0.2, .lostNotices = 0.2});
    const StoreOptions options{.job = "job", .key = secret::JobKey::none(), .pollEvery = 500ms};
    for (int i = 0; i < 4; ++i) {
      Actor& actor = actors_.emplace_back();
      actor.self = contract::memberNamed("host");
      loop_.post([this, &actor, options] {
        auto made = makeMemoryMembership(loop_, table_, options);
        actor.membership = std::move(made.membership);
        actor.way = made.way;
        actor.membership->watch([this, &actor](const StoredEpoch& stored) { seen(actor, stored); });
      });
    }
    loop_.runReady();
  }
  ~StoreSchedule() {
    loop_.post([this] {
      for (Actor& actor : actors_) actor.membership.reset();
    });
    loop_.runReady();
  }
  StoreSchedule(const StoreSchedule&) = delete;
  StoreSchedule& operator=(const StoreSchedule&) = delete;

  void run() {
    for (int i = 0; i < 12; ++i) {
      Actor& actor = actors_[draw() % actors_.size()];
      const uint64_t kind = draw() % 4;
      loop_.post([this, &actor, kind] {
        if (kind == 0) actor.way->setUnavailable("cut");
        if (kind == 1) actor.way->setUnavailable("");
        propose(actor);
      });
      loop_.advance(std::chrono::milliseconds(draw() % 60));
    }
    loop_.post([this] {
      for (Actor& actor : actors_) actor.way->setUnavailable("");
    });
    loop_.advance(30s);
  }

  // Everybody has seen one history, and its end.
  void check() {
    EXPECT_EQ(answered_, asked_);
    ASSERT_FALSE(byNumber_.empty());
    for (const Actor& actor : actors_) EXPECT_EQ(actor.last, byNumber_.rbegin()->first);
  }

 private:
  struct Actor {
    Member self;
    std::unique_ptr<Membership> membership;
    MemoryKeyValues* way = nullptr;
    std::optional<StoredEpoch> stored;
    std::optional<Epoch> last;
  };

  uint64_t draw() { return base::splitmix64(seed_, draws_++); }

  void seen(Actor& actor, const StoredEpoch& stored) {
    if (actor.last) {
      EXPECT_LT(*actor.last, stored.record.number);
    }
    actor.last = stored.record.number;
    actor.stored = stored;
    note(stored);
  }
  void note(const StoredEpoch& stored) {
    const auto [at, isNew] = byNumber_.emplace(stored.record.number, stored.record.nonce);
    EXPECT_EQ(at->second, stored.record.nonce) << "two records of one number, seed " << seed_;
  }
  void propose(Actor& actor) {
    ++asked_;
    const auto got = [this](const Result<StoredEpoch>& stored) {
      ++answered_;
      if (stored.isOk()) note(*stored);
    };
    if (!actor.stored)
      return actor.membership->begin(contract::epochOf(0, {actor.self}, "begin"), 2s, got);
    const uint32_t number = index(actor.stored->record.number) + 1;
    actor.membership->replace(*actor.stored, contract::epochOf(number, {actor.self}, "next"), 2s,
                              got);
  }

  const uint64_t seed_;
  uint64_t draws_ = 1'000'000;  // apart from the draws of the table
  base::ManualLoop loop_;
  const std::shared_ptr<MemoryTable> table_ = std::make_shared<MemoryTable>();
  std::deque<Actor> actors_;
  std::map<Epoch, Nonce> byNumber_;
  int asked_ = 0;
  int answered_ = 0;
};

TEST(MemoryMembership, EverybodySeesOneHistoryWhateverTheScheduleIs) {
  const uint64_t seeds = base::testsAreShort() ? 50 : 1000;
  for (uint64_t seed = 0; seed < seeds && !testing::Test::HasFailure(); ++seed) {
    StoreSchedule schedule(seed);
    schedule.run();
    schedule.check();
  }
}

TEST(MemoryMembership, ARestoredBackupIsNotBelieved) {
  base::ManualLoop loop;
  const auto table = std::make_shared<MemoryTable>();
  const StoreOptions options{.job = "job", .pollEvery = 1s};
  std::unique_ptr<Membership> membership;
  std::vector<Epoch> reported;
  std::optional<Result<StoredEpoch>> answer;
  const auto ask = [&](const Task& call) {
    answer.reset();
    loop.post(call);
    loop.advance(5s);
    EXPECT_TRUE(answer);
  };
  const auto got = [&](const Result<StoredEpoch>& stored) { answer = stored; };
  const Member self = contract::memberNamed("host");
  ask([&] {
    membership = makeMemoryMembership(loop, table, options).membership;
    membership->watch([&](const StoredEpoch& stored) { reported.push_back(stored.record.number); });
    membership->begin(contract::epochOf(0, {self}, "begin"), 1s, got);
  });
  const auto backup = table->backup();
  const StoredEpoch first = **answer;
  ask([&] { membership->replace(first, contract::epochOf(1, {self}, "next"), 1s, got); });
  const StoredEpoch lost = **answer;
  table->restore(backup);
  testing::internal::CaptureStderr();
  ask([&] { membership->latest(1s, got); });
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::HasSubstr("has lost records of job"));
  EXPECT_EQ((*answer)->record, lost.record);
  ask([&] { membership->replace(lost, contract::epochOf(2, {self}, "next"), 1s, got); });
  EXPECT_EQ(answer->status().code(), Code::kNotFound);
  EXPECT_EQ(reported, (std::vector{Epoch{0}, Epoch{1}}));
  loop.post([&] { membership.reset(); });
  loop.runReady();
}

}  // namespace
}  // namespace sluice::membership
