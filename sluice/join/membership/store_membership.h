// The rules of membership.h over any store (key_values.h).
//
// Epochs are only appended: the epoch that follows `before` is put iff no key of a higher epoch than
// `before` exists, in one transaction. So a number is given once, and the list itself is the history.
// A proposer whose answer was lost asks again, finds its own record there, and knows it by its nonce.
//
// Some things should not be in the store: values that a stranger wrote, and epochs below the highest
// one seen, after a backup was restored. Both are passed over, and a proposer removes or passes them
// on its way.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <sluice/base/loop.h>
#include <sluice/join/membership/job_space.h>
#include <sluice/join/membership/key_values.h>
#include <sluice/join/membership/membership.h>

namespace sluice::membership {

struct StoreOptions {
  std::string job;
  secret::JobKey key = secret::JobKey::none();
  // A watch reports within milliseconds; the list is read this often in case the watch is broken.
  Duration pollEvery = std::chrono::seconds(10);
};

class StoreMembership final : public Membership {
 public:
  // REQUIRES: checkJobName(options.job).isOk(); `loop` outlives this object.
  StoreMembership(Loop& loop, std::unique_ptr<KeyValues> store, const StoreOptions& options);
  ~StoreMembership() override;
  StoreMembership(const StoreMembership&) = delete;
  StoreMembership& operator=(const StoreMembership&) = delete;

  void announce(const Member& self, Duration patience, Done done) override;
  bool isAnnounced() const override { return isAnnounced_; }
  void withdraw(Duration patience, Done done) override;
  void announced(Duration patience, GotMembers got) override;
  void begin(const EpochRecord& first, Duration patience, GotEpoch got) override;
  void replace(const StoredEpoch& before, const EpochRecord& next, Duration patience,
               GotEpoch got) override;
  void bindTo(const Nonce& run) override { run_ = run; }
  void latest(Duration patience, GotEpoch got) override;
  void history(size_t most, Duration patience, GotHistory got) override;
  void watch(std::function<void(const StoredEpoch&)> onEpoch) override;
  const Status& health() const override { return store_->health(); }
  void onHealth(std::function<void(const Status&)> changed) override;

 private:
  struct Proposal {
    EpochRecord record;
    std::optional<StoredEpoch> before;  // empty: the record begins the job
    TimePoint deadline;
    GotEpoch got;
  };

  // Entries that are read a few at a time, since an answer of a store has a limit.
  struct Pages {
    KeyRange left;  // of what was not read yet
    size_t most;
    size_t atOnce;
    TimePoint deadline;
    std::function<void(const Entry&)> take;  // the highest keys first
    Done done;
  };

  void readPages(const std::shared_ptr<Pages>& pages);
  void propose(const std::shared_ptr<Proposal>& proposal);
  void judge(const std::shared_ptr<Proposal>& proposal, const Listing& there);
  void removeForged(const std::shared_ptr<Proposal>& proposal, std::vector<Entry> forged);
  Result<EpochRecord> open(const Entry& entry) const;
  std::optional<StoredEpoch> newestOf(const Listing& listing);
  bool isNews(const EpochRecord& record) const;
  void see(const StoredEpoch& stored);
  void warnOf(const Entry& entry, const Status& why);
  void warnOfLostRecords();
  void announcementSeen(bool isThere);
  void endAnnouncing(const Status& status);
  void poll();
  void pollIn(Duration delay);
  void answerLater(Task answer);

  Loop& loop_;
  const JobSpace space_;
  const Duration pollEvery_;

  Nonce run_;                        // not set: any
  std::optional<StoredEpoch> seen_;  // the epoch of the highest number
  std::function<void(const StoredEpoch&)> onEpoch_;
  std::function<void(const Status&)> onHealth_;
  bool isWatching_ = false;  // the store's watch was begun
  bool isPolling_ = false;
  std::optional<TimerId> pollTimer_;
  std::set<std::pair<std::string, uint64_t>> warned_;  // key and revision
  bool hasWarnedOfLoss_ = false;

  bool isAnnounced_ = false;
  Done onAnnounced_;
  std::optional<TimerId> announceTimer_;

  std::deque<Task> answers_;  // due, but not inside the call
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::unique_ptr<KeyValues> store_;  // last: its destructor ends requests by their callbacks
};

}  // namespace sluice::membership
