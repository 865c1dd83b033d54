#include <sluice/join/membership/store_membership.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <sluice/base/check.h>
#include <sluice/base/log.h>

namespace sluice::membership {
namespace {

// Entries that are looked at to find one that can be read.
constexpr size_t kReadAtOnce = 8;
// A stranger could fill the store with members; more than two for each seat are not asked for.
constexpr size_t kMostAnnounced = 2 * kMostMembers;
constexpr size_t kMembersAtOnce = 256;
// Each forged entry is warned of once, up to this number: a stranger must not fill the log either.
constexpr size_t kMostWarned = 100;
// Older epochs are removed from the store.
constexpr uint64_t kEpochsKept = 256;

}  // namespace

StoreMembership::StoreMembership(Loop& loop, std::unique_ptr<KeyValues> store,
                                 const StoreOptions& options)
    : loop_(loop),
      space_(options.job, options.key),
      pollEvery_(options.pollEvery),
      store_(std::move(store)) {
  store_->onHealth([this](const Status& health) {
    // Notices may have been missed while the store was away, so it is read at once.
    if (health.isOk() && isWatching_) pollIn(Duration::zero());
    if (onHealth_) onHealth_(health);
  });
}

StoreMembership::~StoreMembership() {
  if (loop_.isInherited()) {
    // A forked child has neither the loop nor the connections: they stay as they are.
    [[maybe_unused]] const KeyValues* left = store_.release();
    return;
  }
  SLUICE_DCHECK(loop_.inLoop());
  *alive_ = false;
  onEpoch_ = nullptr;
  onHealth_ = nullptr;
  if (pollTimer_) loop_.cancel(*pollTimer_);
  // The store goes first. It ends its calls, and their callbacks still find this object whole.
  store_.reset();
  endAnnouncing(Status(Code::kCancelled, "the membership was closed"));
  for (const Task& answer : std::exchange(answers_, {})) answer();
}

void StoreMembership::answerLater(Task answer) {
  // Callers rely on it that an answer never comes inside the call, not even for an error that
  // is known at once.
  answers_.push_back(std::move(answer));
  loop_.post([this, alive = alive_] {
    if (!*alive) return;
    const Task next = std::move(answers_.front());
    answers_.pop_front();
    next();
  });
}

// ---- Announcements ----

void StoreMembership::announce(const Member& self, Duration patience, Done done) {
  SLUICE_DCHECK(loop_.inLoop());
  if (Status status = check(self); !status.isOk()) {
    answerLater([status = std::move(status), done = std::move(done)] { done(status); });
    return;
  }
  onAnnounced_ = std::move(done);
  announceTimer_ = loop_.after(patience, [this] {
    announceTimer_.reset();
    // If the store is away, its own words say more than the time that has passed.
    endAnnouncing(health().isOk()
                      ? Status(Code::kTimeout, "the announcement of this member takes too long")
                      : health());
  });
  const Entry entry = space_.seal(self);
  store_->keep(entry.key, entry.value, [this](bool isThere) { announcementSeen(isThere); });
}

void StoreMembership::announcementSeen(bool isThere) {
  isAnnounced_ = isThere;
  if (isThere) endAnnouncing(base::ok());
}

void StoreMembership::endAnnouncing(const Status& status) {
  if (announceTimer_) loop_.cancel(*announceTimer_);
  announceTimer_.reset();
  if (const Done done = std::exchange(onAnnounced_, nullptr)) done(status);
}

void StoreMembership::withdraw(Duration patience, Done done) {
  SLUICE_DCHECK(loop_.inLoop());
  isAnnounced_ = false;
  store_->release(loop_.now() + patience, std::move(done));
}

void StoreMembership::announced(Duration patience, GotMembers got) {
  SLUICE_DCHECK(loop_.inLoop());
  const auto members = std::make_shared<std::vector<Member>>();
  readPages(std::make_shared<Pages>(
      space_.members(), kMostAnnounced, kMembersAtOnce, loop_.now() + patience,
      [this, members](const Entry& entry) {
        auto member = space_.openMember(entry);
        // A record that cannot be opened is a stranger's or damaged. It must not hide the others.
        if (member.isOk()) {
          members->push_back(*std::move(member));
        } else {
          warnOf(entry, member.status());
        }
      },
      [members, got = std::move(got)](const Status& status) {
        if (!status.isOk()) return got(status);
        std::ranges::sort(*members, {}, &Member::id);
        got(std::move(*members));
      }));
}

// ---- Proposals ----

void StoreMembership::begin(const EpochRecord& first, Duration patience, GotEpoch got) {
  SLUICE_DCHECK(loop_.inLoop());
  if (Status status = check(first); !status.isOk()) {
    answerLater([status = std::move(status), got = std::move(got)] { got(status); });
    return;
  }
  if (seen_) return latest(patience, std::move(got));
  propose(std::make_shared<Proposal>(first, std::nullopt, loop_.now() + patience, std::move(got)));
}

void StoreMembership::replace(const StoredEpoch& before, const EpochRecord& next, Duration patience,
                              GotEpoch got) {
  SLUICE_DCHECK(loop_.inLoop());
  Status status = check(next);
  if (status.isOk() && next.number <= before.record.number)
    status = {Code::kInvalidArgument,
              fmt::format("epoch {} cannot follow epoch {}", next.number, before.record.number)};
  if (!status.isOk()) {
    answerLater([status = std::move(status), got = std::move(got)] { got(status); });
    return;
  }
  // Such an epoch is known, so the proposal could not win. The caller gets the one that stands.
  if (seen_ && next.number <= seen_->record.number) {
    answerLater([stored = *seen_, got = std::move(got)] { got(stored); });
    return;
  }
  propose(std::make_shared<Proposal>(next, before, loop_.now() + patience, std::move(got)));
}

void StoreMembership::propose(const std::shared_ptr<Proposal>& proposal) {
  const uint64_t number = index(proposal->record.number);
  Entry entry = space_.seal(proposal->record);
  uint64_t from = 0;
  std::optional<Latch> opened;
  if (const auto& before = proposal->before) {
    from = uint64_t{index(before->record.number)} + 1;
    opened = Latch{space_.latchKey(before->record.number), before->revision};
  }
  // The proposal stands only if nothing follows `before` yet: hence the whole range behind it
  // and not this number alone, since another proposer may have chosen another.
  store_->append({.key = std::move(entry.key),
                  .value = std::move(entry.value),
                  .latch = space_.latchKey(proposal->record.number),
                  .absent = space_.epochsFrom(from),
                  .opened = std::move(opened),
                  .forgotten = space_.epochsBefore(number - std::min(number, kEpochsKept))},
                 proposal->deadline, [this, proposal](const Result<Appended>& appended) {
                   if (!appended.isOk()) return proposal->got(appended.status());
                   if (!appended->done) return judge(proposal, appended->there);
                   const StoredEpoch stored{proposal->record, appended->there.revision};
                   see(stored);
                   proposal->got(stored);
                 });
}

// Something was there already: another's epoch, our own whose answer was lost, or what should not
// be there. If nothing was, the latch of the epoch before is gone: another epoch has followed it, and
// the store has lost that.
void StoreMembership::judge(const std::shared_ptr<Proposal>& proposal, const Listing& there) {
  if (const auto newest = newestOf(there)) {
    if (isNews(newest->record)) {
      see(*newest);
      return proposal->got(*newest);
    }
    return proposal->got(*seen_);
  }
  if (!there.entries.empty()) return removeForged(proposal, there.entries);
  proposal->got(
      Status(Code::kNotFound,
             fmt::format("the store has lost the latest epochs of job {}, so its members cannot be "
                         "agreed on any more; start it again from a checkpoint with another --job",
                         space_.job())));
}

void StoreMembership::removeForged(const std::shared_ptr<Proposal>& proposal,
                                   std::vector<Entry> forged) {
  // Whoever has access to the store but not the job's key can put an entry there. It would
  // stand in the way of every later epoch, so it is removed and the proposal made again.
  if (forged.empty()) return propose(proposal);
  const Entry entry = std::move(forged.back());
  forged.pop_back();
  store_->removeUnchanged(
      entry, proposal->deadline,
      [this, proposal, forged = std::move(forged)](const Status& status) mutable {
        if (!status.isOk()) return proposal->got(status);
        removeForged(proposal, std::move(forged));
      });
}

// ---- Reading ----

std::optional<StoredEpoch> StoreMembership::newestOf(const Listing& listing) {
  // The highest numbers come first. A forged entry with a high number must not hide the newest
  // record that is real.
  for (const Entry& entry : listing.entries) {
    auto record = open(entry);
    if (record.isOk()) return StoredEpoch{*std::move(record), entry.created};
    warnOf(entry, record.status());
  }
  return std::nullopt;
}

Result<EpochRecord> StoreMembership::open(const Entry& entry) const {
  SLUICE_ASSIGN_OR_RETURN(auto record, space_.openEpoch(entry));
  if (!run_.isSet() || record.run == run_) return record;
  return Status(Code::kDataLoss, fmt::format("epoch {} in the store is of an earlier job named {}",
                                             record.number, space_.job()));
}

bool StoreMembership::isNews(const EpochRecord& record) const {
  return !seen_ || record.number > seen_->record.number || record.nonce == seen_->record.nonce;
}

void StoreMembership::see(const StoredEpoch& stored) {
  if (seen_ && stored.record.number <= seen_->record.number) return;
  seen_ = stored;
  if (onEpoch_) onEpoch_(stored);
}

void StoreMembership::warnOfLostRecords() {
  if (std::exchange(hasWarnedOfLoss_, true)) return;
  log("membership")
      .warn(
          "the store has lost records of job {}: the job may end with the next member that it "
          "loses; make a checkpoint",
          space_.job());
}

void StoreMembership::warnOf(const Entry& entry, const Status& why) {
  if (warned_.size() == kMostWarned) return;
  if (!warned_.emplace(entry.key, entry.revision).second) return;
  log("membership").warn("{}; it is ignored", why.message());
}

void StoreMembership::latest(Duration patience, GotEpoch got) {
  SLUICE_DCHECK(loop_.inLoop());
  store_->list(
      space_.epochs(), kReadAtOnce, loop_.now() + patience,
      [this, got = std::move(got)](const Result<Listing>& listing) {
        if (!listing.isOk()) return got(listing.status());
        const auto newest = newestOf(*listing);
        if (newest && isNews(newest->record)) {
          see(*newest);
          return got(*newest);
        }
        if (seen_) return got(*seen_);
        if (listing->entries.empty())
          return got(Status(Code::kNotFound,
                            fmt::format("the store has no epoch of job {} under this job key; has "
                                        "the job begun, and is this its key?",
                                        space_.job())));
        got(open(listing->entries.front()).status());
      });
}

void StoreMembership::history(size_t most, Duration patience, GotHistory got) {
  SLUICE_DCHECK(loop_.inLoop());
  const auto records = std::make_shared<std::vector<EpochRecord>>();
  readPages(std::make_shared<Pages>(
      space_.epochs(), std::clamp<size_t>(most, 1, kEpochsKept), kReadAtOnce,
      loop_.now() + patience,
      [this, records](const Entry& entry) {
        auto record = open(entry);
        if (record.isOk()) {
          records->push_back(*std::move(record));
        } else {
          warnOf(entry, record.status());
        }
      },
      [records, got = std::move(got)](const Status& status) {
        if (!status.isOk()) return got(status);
        std::ranges::reverse(*records);
        got(std::move(*records));
      }));
}

void StoreMembership::readPages(const std::shared_ptr<Pages>& pages) {
  store_->list(
      pages->left, std::min(pages->most, pages->atOnce), pages->deadline,
      [this, pages](const Result<Listing>& listing) {
        if (!listing.isOk()) return pages->done(listing.status());
        const std::vector<Entry>& entries = listing->entries;
        for (const Entry& entry : entries) pages->take(entry);
        pages->most -= std::min(pages->most, entries.size());
        // A store that answers with keys it was not asked for would be asked for ever.
        if (entries.empty() || pages->most == 0 || !pages->left.contains(entries.back().key))
          return pages->done(base::ok());
        pages->left.end = entries.back().key;
        readPages(pages);
      });
}

// ---- Watching ----

void StoreMembership::watch(std::function<void(const StoredEpoch&)> onEpoch) {
  SLUICE_DCHECK(loop_.inLoop());
  onEpoch_ = std::move(onEpoch);
  if (isWatching_) return;
  isWatching_ = true;
  store_->watch(space_.epochs(), [this](const Entry& entry) {
    const auto record = open(entry);
    if (!record.isOk()) return warnOf(entry, record.status());
    see({*record, entry.created});
  });
  pollIn(Duration::zero());
}

void StoreMembership::pollIn(Duration delay) {
  if (pollTimer_) loop_.cancel(*pollTimer_);
  pollTimer_ = loop_.after(delay, [this] {
    pollTimer_.reset();
    poll();
  });
}

void StoreMembership::poll() {
  if (isPolling_) return pollIn(pollEvery_);
  isPolling_ = true;
  // The epoch is noted before the question: one that becomes known while the listing is on its
  // way would otherwise look lost.
  std::optional<Epoch> known;
  if (seen_) known = seen_->record.number;
  store_->list(space_.epochs(), kReadAtOnce, loop_.now() + pollEvery_,
               [this, known](const Result<Listing>& listing) {
                 isPolling_ = false;
                 if (!*alive_) return;
                 // While the store is away a poll lasts until its deadline.
                 if (!pollTimer_) pollIn(listing.isOk() ? pollEvery_ : pollEvery_ / 20);
                 if (!listing.isOk()) return;
                 const auto newest = newestOf(*listing);
                 const bool isAll = listing->entries.size() < kReadAtOnce;
                 if (known && isAll && (!newest || newest->record.number < *known))
                   warnOfLostRecords();
                 if (!newest || !isNews(newest->record)) return;
                 // The watch should have told of this epoch. Perhaps it is dead without knowing
                 // it.
                 const bool isMissed = seen_ && newest->record.number > seen_->record.number;
                 see(*newest);
                 if (isMissed) store_->rewatch();
               });
}

void StoreMembership::onHealth(std::function<void(const Status&)> changed) {
  SLUICE_DCHECK(loop_.inLoop());
  onHealth_ = std::move(changed);
}

}  // namespace sluice::membership
