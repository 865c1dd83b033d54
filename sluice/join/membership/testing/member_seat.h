// One member in a test of membership. Its calls wait for the answer, in the store's time.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sluice/join/membership/testing/store_under_test.h>

namespace sluice::membership::contract {

using namespace std::chrono_literals;

inline constexpr Duration kTestPatience = 20s;

inline Member memberNamed(const std::string& host) {
  return {.id = MemberId::random(),
          .host = host,
          .address = "10.0.0.1:4000",
          .since = Step{0},
          .came = wallTimeNow()};
}

inline const Nonce kTestRun = Nonce::random();

inline EpochRecord epochOf(uint32_t number, std::vector<Member> members, const std::string& why) {
  EpochRecord record;
  record.number = Epoch{number};
  record.proposer = members.front().id;
  record.members = std::move(members);
  record.firstStep = Step{uint64_t{number} * 10};
  record.why = why;
  record.nonce = Nonce::random();
  record.run = kTestRun;
  record.proposed = wallTimeNow();
  return record;
}

// An answer that is to come; it must come once.
template <typename T>
class Awaited {
 public:
  std::function<void(T)> callback() {
    return [state = state_](T value) {
      ++state->times;
      state->value = std::move(value);
    };
  }
  bool has() const { return state_->value.has_value(); }
  int times() const { return state_->times; }
  T take() const { return *state_->value; }

 private:
  struct State {
    std::optional<T> value;
    int times = 0;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

class MemberSeat final {
 public:
  MemberSeat(StoreUnderTest& store, const StoreOptions& options, const std::string& host)
      : store_(store), self_(memberNamed(host)) {
    store_.onLoop([&] {
      membership_ = store_.make(options);
      membership_->onHealth([this](const Status& health) { healths_.push_back(health); });
    });
  }
  ~MemberSeat() { leave(); }
  MemberSeat(const MemberSeat&) = delete;
  MemberSeat& operator=(const MemberSeat&) = delete;

  void leave() {
    store_.onLoop([this] { membership_.reset(); });
  }
  void watch() {
    store_.onLoop([this] {
      membership_->watch([this](const StoredEpoch& stored) { reported_.push_back(stored); });
    });
  }

  const Member& self() const { return self_; }
  Membership& membership() { return *membership_; }

  // Starts a call; wait() waits for its answer.
  Awaited<Result<StoredEpoch>> startBegin(const EpochRecord& first) {
    return start<Result<StoredEpoch>>(
        [&](const auto& got) { membership_->begin(first, kTestPatience, got); });
  }
  Awaited<Result<StoredEpoch>> startReplace(const StoredEpoch& before, const EpochRecord& next,
                                            Duration patience = kTestPatience) {
    return start<Result<StoredEpoch>>(
        [&](const auto& got) { membership_->replace(before, next, patience, got); });
  }
  Awaited<Result<StoredEpoch>> startLatest(Duration patience = kTestPatience) {
    return start<Result<StoredEpoch>>([&](const auto& got) { membership_->latest(patience, got); });
  }
  template <typename T>
  T wait(const Awaited<T>& awaited) {
    EXPECT_TRUE(store_.runUntil([&] { return awaited.has(); }, kTestPatience + 5s));
    EXPECT_EQ(awaited.times(), 1);
    return awaited.take();
  }

  Result<StoredEpoch> begin(const EpochRecord& first) { return wait(startBegin(first)); }
  Result<StoredEpoch> replace(const StoredEpoch& before, const EpochRecord& next) {
    return wait(startReplace(before, next));
  }
  Result<StoredEpoch> latest() { return wait(startLatest()); }
  Result<std::vector<EpochRecord>> history(size_t most) {
    return wait(start<Result<std::vector<EpochRecord>>>(
        [&](const auto& got) { membership_->history(most, kTestPatience, got); }));
  }
  Result<std::vector<Member>> announced() {
    return wait(start<Result<std::vector<Member>>>(
        [&](const auto& got) { membership_->announced(kTestPatience, got); }));
  }
  Status announce() {
    return wait(start<Status>(
        [&](const auto& done) { membership_->announce(self_, kTestPatience, done); }));
  }
  Status withdraw() {
    return wait(
        start<Status>([&](const auto& done) { membership_->withdraw(kTestPatience, done); }));
  }

  // The reports of the watch and of onHealth(). Look at them on the loop, or through copies.
  std::vector<StoredEpoch> reported() {
    std::vector<StoredEpoch> copy;
    store_.onLoop([&] { copy = reported_; });
    return copy;
  }
  std::vector<Status> healths() {
    std::vector<Status> copy;
    store_.onLoop([&] { copy = healths_; });
    return copy;
  }
  // Waits for the first report that the store is away, and returns it; empty if none came in time.
  std::string firstFault() {
    store_.runUntil([&] { return !healths_.empty(); }, kTestPatience);
    const auto all = healths();
    return all.empty() ? "" : all.front().message();
  }
  bool waitReported(Epoch number, Duration patience = kTestPatience) {
    return store_.runUntil(
        [&] { return !reported_.empty() && reported_.back().record.number >= number; }, patience);
  }
  bool waitHealth(bool isOk, Duration patience = kTestPatience) {
    return store_.runUntil([&] { return membership_->health().isOk() == isOk; }, patience);
  }
  bool waitAnnounced(bool isAnnounced, Duration patience = kTestPatience) {
    return store_.runUntil([&] { return membership_->isAnnounced() == isAnnounced; }, patience);
  }

 private:
  template <typename T, typename Call>
  Awaited<T> start(Call call) {
    Awaited<T> awaited;
    store_.onLoop([&] {
      call(awaited.callback());
      EXPECT_FALSE(awaited.has()) << "the answer came inside the call";
    });
    return awaited;
  }

  StoreUnderTest& store_;
  const Member self_;
  std::unique_ptr<Membership> membership_;
  std::vector<StoredEpoch> reported_;
  std::vector<Status> healths_;
};

}  // namespace sluice::membership::contract
