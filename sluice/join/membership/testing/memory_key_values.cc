#include <sluice/join/membership/testing/memory_key_values.h>

#include <utility>

#include <fmt/format.h>

#include <sluice/base/check.h>

namespace sluice::membership {
namespace {

using namespace std::chrono_literals;

constexpr Duration kMemoryRetry = 100ms;
constexpr Duration kMemoryAnswerTimeout = 300ms;
constexpr Duration kMemoryLease = 10s;

}  // namespace

MemoryKeyValues::~MemoryKeyValues() {
  // Tasks of this object may still be in the loop's queue or in a watcher's post. They look at
  // the flag first, which they share, and leave a destroyed object alone.
  *alive_ = false;
  if (watch_) table_->removeWatch(*watch_);
  for (auto& [id, request] : std::exchange(requests_, {})) {
    loop_.cancel(request.deadline);
    request.end(Status(Code::kCancelled, "the membership was closed"));
  }
}

TimerId MemoryKeyValues::afterIfAlive(Duration delay, Task task) {
  return loop_.after(delay, [alive = alive_, task = std::move(task)] {
    if (*alive) task();
  });
}

// ---- Requests ----

void MemoryKeyValues::start(Task apply, TimePoint deadline, std::function<void(Status)> end) {
  SLUICE_DCHECK(loop_.inLoop());
  const uint64_t id = nextRequest_++;
  const TimerId timer = afterIfAlive(deadline - loop_.now(), [this, id] {
    const auto found = requests_.find(id);
    if (found == requests_.end()) return;
    this->end(id, Status(Code::kTimeout, fmt::format("the store has not answered in time: {}",
                                                     found->second.fault)));
  });
  requests_.emplace(id,
                    Request{.apply = std::move(apply), .end = std::move(end), .deadline = timer});
  attempt(id);
}

template <typename T>
void MemoryKeyValues::start(std::function<T(MemoryTable&)> ask, TimePoint deadline, Got<T> got) {
  // A request whose answer is lost is applied again, and the last answer counts, exactly as
  // with a real store.
  const auto answer = std::make_shared<std::optional<T>>();
  start([this, answer, ask = std::move(ask)] { *answer = ask(*table_); }, deadline,
        [answer, got = std::move(got)](const Status& status) {
          if (!status.isOk()) return got(status);
          got(std::move(**answer));
        });
}

void MemoryKeyValues::attempt(uint64_t request) {
  // The network has held the request up. It takes effect however late it arrives, and nobody hears
  // of its answer.
  if (const auto lateness = table_->drawLateness()) {
    const auto found = requests_.find(request);
    if (found == requests_.end()) return;
    afterIfAlive(*lateness, found->second.apply);
    afterIfAlive(kMemoryAnswerTimeout, [this, request] { attempt(request); });
    return;
  }
  afterIfAlive(table_->drawDelay(), [this, request] { arrive(request); });
}

void MemoryKeyValues::arrive(uint64_t request) {
  const auto found = requests_.find(request);
  if (found == requests_.end()) return;
  if (std::string why = whyUnavailable(); !why.empty()) {
    found->second.fault = why;
    afterIfAlive(kMemoryRetry, [this, request] { attempt(request); });
    return setHealth(Status(Code::kUnavailable, std::move(why)));
  }
  found->second.apply();
  // The request was applied, but its sender does not learn of it and asks again. This is the
  // case that a protocol over a store gets wrong most easily, so tests draw it often.
  if (table_->drawLostAnswer()) {
    afterIfAlive(kMemoryAnswerTimeout, [this, request] { attempt(request); });
    return;
  }
  afterIfAlive(table_->drawDelay(), [this, request] { end(request, base::ok()); });
}

void MemoryKeyValues::end(uint64_t request, const Status& status) {
  auto node = requests_.extract(request);
  if (node.empty()) return;
  loop_.cancel(node.mapped().deadline);
  if (status.isOk()) setHealth(base::ok());
  node.mapped().end(status);
}

std::string MemoryKeyValues::whyUnavailable() const {
  return unavailable_.empty() ? table_->whyUnavailable() : unavailable_;
}

void MemoryKeyValues::setHealth(const Status& health) {
  const bool isChange = health.isOk() != health_.isOk();
  health_ = health;
  if (isChange && onHealth_) onHealth_(health_);
}

void MemoryKeyValues::append(const Append& append, TimePoint deadline, Got<Appended> got) {
  start<Appended>([this, append](MemoryTable& table) { return table.append(append, loop_.now()); },
                  deadline, std::move(got));
}

void MemoryKeyValues::list(const KeyRange& range, size_t most, TimePoint deadline,
                           Got<Listing> got) {
  start<Listing>(
      [this, range, most](MemoryTable& table) { return table.list(range, most, loop_.now()); },
      deadline, std::move(got));
}

void MemoryKeyValues::removeUnchanged(const Entry& entry, TimePoint deadline,
                                      std::function<void(Status)> done) {
  start([this, entry] { table_->removeUnchanged(entry); }, deadline, std::move(done));
}

// ---- The lease ----

void MemoryKeyValues::keep(const std::string& key, const std::string& value,
                           std::function<void(bool)> onKept) {
  SLUICE_DCHECK(loop_.inLoop());
  kept_ = Kept{.key = key, .value = value, .onKept = std::move(onKept)};
  afterIfAlive(table_->drawDelay(), [this] { renew(); });
}

void MemoryKeyValues::renew() {
  if (!kept_) return;
  if (std::string why = whyUnavailable(); !why.empty()) {
    afterIfAlive(kMemoryRetry, [this] { renew(); });
    return setHealth(Status(Code::kUnavailable, std::move(why)));
  }
  const TimePoint now = loop_.now();
  const bool wasThere = table_->renew(kept_->key, kept_->value, now + kMemoryLease, now);
  afterIfAlive(kMemoryLease / 3, [this] { renew(); });
  setHealth(base::ok());
  // The key was gone for a while, and this renewal made it anew. The owner is told both, in
  // this order, as with a store that reports each by itself.
  const bool isLost = kept_->isThere && !wasThere;
  const bool isNew = !kept_->isThere || isLost;
  kept_->isThere = true;
  const auto onKept = kept_->onKept;
  if (isLost) onKept(false);
  if (isNew) onKept(true);
}

void MemoryKeyValues::release(TimePoint deadline, std::function<void(Status)> done) {
  const std::string key = kept_ ? kept_->key : std::string();
  kept_.reset();
  start([this, key] { table_->remove(key); }, deadline, std::move(done));
}

// ---- The watch ----

void MemoryKeyValues::watch(const KeyRange& range, std::function<void(const Entry&)> onPut) {
  SLUICE_DCHECK(loop_.inLoop());
  watch_ = table_->addWatch(loop_, range,
                            [this, alive = alive_, onPut = std::move(onPut)](const Entry& entry) {
                              if (!*alive) return;
                              afterIfAlive(table_->drawDelay(), [this, onPut, entry] {
                                // A member that is cut off from the store receives no notices
                                // either. They are lost, not late: it finds out by listing.
                                if (whyUnavailable().empty()) onPut(entry);
                              });
                            });
}

}  // namespace sluice::membership
