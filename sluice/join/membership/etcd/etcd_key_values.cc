#include <sluice/join/membership/etcd/etcd_key_values.h>

#include <utility>

#include <sluice/base/check.h>
#include <sluice/join/membership/etcd/etcd_json.h>

namespace sluice::membership {
namespace {

constexpr std::string_view kRangePath = "/v3/kv/range";
constexpr std::string_view kTransactionPath = "/v3/kv/txn";
// Some may be a stranger's.
constexpr size_t kLookedAtInGap = 8;

// Makes a callback for JSON from one for what `read` finds in it.
template <typename T>
EtcdClient::Got reading(Result<T> (*read)(const nlohmann::json&), KeyValues::Got<T> got) {
  return [read, got = std::move(got)](const Result<nlohmann::json>& answer) {
    if (!answer.isOk()) return got(answer.status());
    got(read(*answer));
  };
}

}  // namespace

EtcdKeyValues::EtcdKeyValues(net::EpollLoop& loop, const EtcdOptions& options)
    : loop_(loop), options_(options), http_(loop, options.files), client_(loop, http_, options) {
  // Every answer carries the store's revision, and the watch compares it with what it has seen.
  // So a restored backup is noticed by whatever call comes next, without a request of its own.
  client_.onRevision([this](uint64_t revision) {
    if (watch_) watch_->storeIsAt(revision);
  });
  client_.onToken([this] {
    if (watch_) watch_->retryNow();
  });
}

EtcdKeyValues::~EtcdKeyValues() {
  if (loop_.isInherited()) return;
  // The client ends its calls when it is destroyed, after this body. The count makes their
  // callbacks return before they touch the kept key.
  kept_.reset();
  ++keeping_;
  if (keepTimer_) loop_.cancel(*keepTimer_);
}

void EtcdKeyValues::append(const Append& append, TimePoint deadline, Got<Appended> got) {
  client_.call(kTransactionPath, appendRequest(append), deadline,
               reading<Appended>(&readAppended, [got = std::move(got)](Result<Appended> answer) {
                 // Membership means a lost epoch by kNotFound, not a server that lacks the path.
                 if (answer.status().code() == Code::kNotFound)
                   return got(Status(Code::kRefused, answer.status().message()));
                 got(std::move(answer));
               }));
}

void EtcdKeyValues::list(const KeyRange& range, size_t most, TimePoint deadline, Got<Listing> got) {
  client_.call(
      kRangePath, listRequest(range, most), deadline,
      [this, range, most, deadline, got = std::move(got)](const Result<nlohmann::json>& answer) {
        // The records of a large job: fewer of them fit.
        if (answer.status().code() == Code::kDataLoss && most > 1)
          return list(range, most / 2, deadline, got);
        if (!answer.isOk()) return got(answer.status());
        got(readListing(*answer, most));
      },
      most > 1 ? EtcdClient::IfTooLarge::kEnd : EtcdClient::IfTooLarge::kAskOthers);
}

void EtcdKeyValues::removeUnchanged(const Entry& entry, TimePoint deadline,
                                    std::function<void(Status)> done) {
  client_.call(
      kTransactionPath, removeRequest(entry), deadline,
      [done = std::move(done)](const Result<nlohmann::json>& answer) { done(answer.status()); });
}

// ---- The lease ----

void EtcdKeyValues::keep(const std::string& key, const std::string& value,
                         std::function<void(bool)> onKept) {
  SLUICE_DCHECK(loop_.inLoop());
  ++keeping_;
  kept_.emplace(Kept{.key = key,
                     .value = value,
                     .onKept = std::move(onKept),
                     .pauses = Pauses(options_.leastPause, options_.mostPause)});
  grant();
}

void EtcdKeyValues::callForKept(std::string_view path, std::string body,
                                std::function<void(const nlohmann::json&)> then) {
  client_.call(
      path, std::move(body), loop_.now() + options_.lease,
      [this, keeping = keeping_, then = std::move(then)](const Result<nlohmann::json>& answer) {
        // An answer may come after release(), or after the key was kept anew; it then belongs
        // to a lease that is no longer of interest. Comparing the count is enough, because it
        // never goes back.
        if (keeping != keeping_) return;
        if (answer.isOk()) return then(*answer);
        stepIn(kept_->pauses.next(), &EtcdKeyValues::grant);
      });
}

void EtcdKeyValues::stepIn(Duration delay, Step step) {
  keepTimer_ = loop_.after(delay, [this, keeping = keeping_, step] {
    keepTimer_.reset();
    if (keeping == keeping_) (this->*step)();
  });
}

void EtcdKeyValues::setThere(bool isThere) {
  if (kept_->isThere == isThere) return;
  kept_->isThere = isThere;
  // The callback is copied, since it may call release(), which destroys the one that is
  // running.
  const auto onKept = kept_->onKept;
  onKept(isThere);
}

void EtcdKeyValues::grant() {
  if (kept_->lease) return renew();
  // etcd counts leases in whole seconds. Rounded down, a lease below a second would be none.
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(options_.lease).count();
  callForKept("/v3/lease/grant", grantRequest(seconds), [this](const nlohmann::json& answer) {
    const auto lease = readGrantedLease(answer);
    if (!lease.isOk()) return stepIn(kept_->pauses.next(), &EtcdKeyValues::grant);
    kept_->lease = *lease;
    put();
  });
}

void EtcdKeyValues::put() {
  client_.call("/v3/kv/put", leasedPutRequest(kept_->key, kept_->value, *kept_->lease),
               loop_.now() + options_.lease,
               [this, keeping = keeping_](const Result<nlohmann::json>& answer) {
                 if (keeping != keeping_) return;
                 // A failed put leaves open whether the key is there and whether the lease
                 // lives. Beginning again with a new lease is right in each case; what the old
                 // one may still hold ends by itself.
                 if (!answer.isOk()) return lostLease();
                 kept_->pauses.reset();
                 // Two renewals may fail before the lease ends: the others would take a member
                 // for lost whose store was merely slow for a moment.
                 stepIn(options_.lease / 3, &EtcdKeyValues::renew);
                 setThere(true);
               });
}

void EtcdKeyValues::renew() {
  callForKept("/v3/lease/keepalive", leaseRequest(*kept_->lease),
              [this](const nlohmann::json& answer) {
                const auto isAlive = readKeptLease(answer);
                if (!isAlive.isOk() || !*isAlive) return lostLease();
                look();
              });
}

// Somebody may have removed the key while its lease lives.
void EtcdKeyValues::look() {
  callForKept(kRangePath, isThereRequest(kept_->key), [this](const nlohmann::json& answer) {
    const auto listing = readListing(answer, 1);
    if (listing.isOk() && listing->entries.empty()) {
      setThere(false);
      return put();
    }
    kept_->pauses.reset();
    stepIn(options_.lease / 3, &EtcdKeyValues::renew);
    setThere(true);
  });
}

void EtcdKeyValues::lostLease() {
  kept_->lease.reset();
  stepIn(kept_->pauses.next(), &EtcdKeyValues::grant);
  setThere(false);
}

void EtcdKeyValues::release(TimePoint deadline, std::function<void(Status)> done) {
  SLUICE_DCHECK(loop_.inLoop());
  // The lease is revoked rather than the key removed: that also takes a key whose put is still
  // under way. With lease 0 etcd answers that it is not there, which is as good as an end.
  const int64_t lease = kept_ && kept_->lease ? *kept_->lease : 0;
  kept_.reset();
  ++keeping_;
  if (keepTimer_) loop_.cancel(*keepTimer_);
  keepTimer_.reset();
  client_.call("/v3/lease/revoke", leaseRequest(lease), deadline,
               [done = std::move(done)](const Result<nlohmann::json>& answer) {
                 // A lease that is not there needs no end.
                 const bool isGone = answer.isOk() || answer.status().code() == Code::kNotFound;
                 done(isGone ? base::ok() : answer.status());
               });
}

// ---- The watch ----

void EtcdKeyValues::watch(const KeyRange& range, std::function<void(const Entry&)> onPut) {
  SLUICE_DCHECK(loop_.inLoop());
  watched_ = range;
  onPut_ = std::move(onPut);
  watch_ = std::make_unique<EtcdWatch>(
      loop_, http_, client_, options_, range, [this](const Entry& entry) { onPut_(entry); },
      [this] { fillGap(); });
}

void EtcdKeyValues::onHealth(std::function<void(const Status&)> changed) {
  client_.onHealth([this, changed = std::move(changed)](const Status& health) {
    if (health.isOk() && watch_) watch_->retryNow();
    changed(health);
  });
}

void EtcdKeyValues::rewatch() {
  if (watch_) watch_->restart();
}

void EtcdKeyValues::fillGap() {
  list(watched_, kLookedAtInGap, loop_.now() + options_.lease,
       [this](const Result<Listing>& there) {
         if (!there.isOk()) return;  // the owner reads the range now and then
         // A listing has the highest keys first, but puts are reported in the order in which they
         // were made.
         for (auto entry = there->entries.rbegin(); entry != there->entries.rend(); ++entry)
           onPut_(*entry);
       });
}

}  // namespace sluice::membership
