#include <sluice/join/rendezvous/table.h>

#include <algorithm>

#include <fmt/format.h>

#include <sluice/base/units.h>
#include <sluice/join/rendezvous/message.h>
#include <sluice/join/rendezvous/rank_list.h>

namespace sluice::rendezvous {
namespace {

// The cost of a key, a wait or a brought value beside its bytes.
constexpr size_t kEntryBytes = 256;
// A rank that lost its connection asks again within seconds; these are far more answers than it can
// have missed.
constexpr size_t kMostEnded = 64;
constexpr size_t kLargestEndedBytes = size_t{64} << 20;

}  // namespace

ValueTable::~ValueTable() {
  const Status ended(Code::kCancelled, "the rendezvous has ended");
  for (auto& [key, waiters] : std::exchange(waits_, {})) {
    for (const auto& waiter : waiters) answer(waiter, ended);
  }
  for (auto& [key, gather] : std::exchange(gathers_, {})) {
    for (const auto& waiter : gather.waiters) answer(waiter, ended);
  }
}

Status ValueTable::set(const std::string& key, std::string value) {
  SLUICE_RETURN_IF_ERROR(checkSizes(key, value));
  const auto found = values_.find(key);
  const bool isNew = found == values_.end();
  // The room is checked before anything changes. A value that replaces a longer one always
  // fits, even in a full table, so a rank can still update what it has.
  const size_t before = isNew ? 0 : found->second->size();
  const size_t after = value.size() + (isNew ? key.size() + kEntryBytes : 0);
  if (after > before) SLUICE_RETURN_IF_ERROR(checkRoomFor(after - before));
  bytes_ = bytes_ - before + after;
  auto& slot = values_[key];
  slot = std::make_shared<const std::string>(std::move(value));
  if (auto node = waits_.extract(key)) {
    for (const auto& waiter : node.mapped()) answer(waiter, slot);
  }
  return base::ok();
}

Status ValueTable::checkRoomFor(size_t bytes) const {
  if (bytes_ + bytes <= largestBytes_) return base::ok();
  return {Code::kUnavailable,
          fmt::format("the store of the rendezvous is full: all of its {} are used",
                      base::formatBytes(largestBytes_))};
}

Result<std::shared_ptr<const std::string>> ValueTable::get(const std::string& key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) {
    return Status(Code::kNotFound, fmt::format("no rank has set '{}'", key));
  }
  return found->second;
}

std::shared_ptr<ValueTable::Waiter> ValueTable::addWaiter(Rank who, const std::string& key,
                                                          Duration timeout, Got got,
                                                          OnTimeout onTimeout) {
  auto waiter =
      std::make_shared<Waiter>(Waiter{who, std::move(got), timeout, {}, key.size() + kEntryBytes});
  bytes_ += waiter->bytes;
  waiter->timer = loop_.after(timeout, [this, key, onTimeout, weak = std::weak_ptr(waiter)] {
    if (const auto self = weak.lock()) (this->*onTimeout)(key, self);
  });
  return waiter;
}

void ValueTable::answer(const std::shared_ptr<Waiter>& waiter,
                        Result<std::shared_ptr<const std::string>> result) {
  // Answers are posted: a Got may call the table again, which may be in the middle of a loop
  // over its waiters.
  loop_.cancel(waiter->timer);
  bytes_ -= waiter->bytes;
  loop_.post([waiter, result = std::move(result)] { waiter->got(result); });
}

void ValueTable::wait(Rank who, const std::string& key, Duration timeout, Got got) {
  SLUICE_DCHECK(loop_.inLoop());
  Result<std::shared_ptr<const std::string>> now = get(key);
  if (!now.isOk()) {
    Status taken = checkSizes(key, "");
    if (taken.isOk()) taken = checkRoomFor(key.size() + kEntryBytes);
    if (taken.isOk()) {
      waits_[key].push_back(addWaiter(who, key, timeout, std::move(got), &ValueTable::timeOutWait));
      return;
    }
    now = taken;
  }
  loop_.post([got = std::move(got), now] { got(now); });
}

void ValueTable::forget(Rank who, Waiters& waiters) {
  std::erase_if(waiters, [&](const std::shared_ptr<Waiter>& waiter) {
    const bool isOfThatRank = waiter->who == who;
    if (isOfThatRank) answer(waiter, Status(Code::kCancelled, "its connection is gone"));
    return isOfThatRank;
  });
}

void ValueTable::disconnected(Rank who) {
  for (auto& [key, waiters] : waits_) forget(who, waiters);
  std::erase_if(waits_, [](const auto& entry) { return entry.second.empty(); });
  for (auto& [key, gather] : gathers_) forget(who, gather.waiters);
}

void ValueTable::timeOutWait(const std::string& key, const std::shared_ptr<Waiter>& waiter) {
  auto& waiters = waits_.at(key);
  std::erase(waiters, waiter);
  if (waiters.empty()) waits_.erase(key);
  answer(waiter, Status(Code::kTimeout, fmt::format("no rank has set '{}' in {}", key,
                                                    base::formatDuration(waiter->timeout))));
}

std::vector<Rank> ValueTable::missingFrom(const Gather& gather) const {
  std::vector<Rank> missing;
  for (uint32_t r = 0; r < worldSize_; ++r) {
    if (!gather.brought.contains(Rank{r})) missing.push_back(Rank{r});
  }
  return missing;
}

void ValueTable::gather(Rank who, uint32_t id, const std::string& key, std::string value,
                        Duration timeout, Got got) {
  SLUICE_DCHECK(loop_.inLoop());
  const auto respond = [&](Result<std::shared_ptr<const std::string>> now) {
    loop_.post([got = std::move(got), now = std::move(now)] { got(now); });
  };
  // A rank whose connection broke asks again with the number of its request. If the gathering
  // has ended meanwhile, it gets the answer that it has missed; without this it would open a
  // second gathering that nobody else comes to.
  const auto ended = std::ranges::find_if(ended_, [&](const Ended& each) {
    const auto own = each.ids.find(who);
    return id != 0 && each.key == key && own != each.ids.end() && own->second == id;
  });
  if (ended != ended_.end()) return respond(ended->answer);
  if (const Status sizes = checkSizes(key, value); !sizes.isOk()) return respond(sizes);
  const size_t bytes = value.size() + kEntryBytes;
  const size_t keyBytes = key.size() + kEntryBytes;
  if (const Status room = checkRoomFor(bytes + 2 * keyBytes); !room.isOk()) return respond(room);
  auto& gather = gathers_[key];
  if (gather.brought.empty()) {
    gather.begun = loop_.now();
    gather.bytes = keyBytes;
    bytes_ += keyBytes;
  }
  const auto own = gather.brought.find(who);
  if (own == gather.brought.end()) {
    gather.brought.emplace(who, Brought{id, std::move(value)});
    gather.bytes += bytes;
    bytes_ += bytes;
  } else if (id == 0 || own->second.id != id || own->second.value != value) {
    return respond(Status(Code::kAlreadyExists,
                          fmt::format("rank {} has given its '{}' already", index(who), key)));
  }
  gather.waiters.push_back(
      addWaiter(who, key, timeout, std::move(got), &ValueTable::timeOutGather));
  // A rank that is known to be gone is not waited for: the gathering fails now, for all who are
  // in it, with the reason.
  for (const auto& [rank, absence] : absent_) {
    if (!gather.brought.contains(rank)) return miss(rank, Absence(absence));
  }
  if (gather.brought.size() == worldSize_) finish(key);
}

void ValueTable::finish(const std::string& key) {
  auto node = gathers_.extract(key);
  Gather& gather = node.mapped();
  bytes_ -= gather.bytes;
  Ended ended{.key = key, .ids = {}, .answer = {}};
  std::vector<std::string> values;
  values.reserve(worldSize_);
  for (auto& [rank, brought] : gather.brought) {
    ended.ids.emplace(rank, brought.id);
    values.push_back(std::move(brought.value));
  }
  ended.answer = std::make_shared<const std::string>(encodeList(values));
  for (const auto& waiter : gather.waiters) answer(waiter, ended.answer);
  endedBytes_ += ended.answer->size();
  ended_.push_back(std::move(ended));
  while (ended_.size() > kMostEnded || (ended_.size() > 1 && endedBytes_ > kLargestEndedBytes)) {
    endedBytes_ -= ended_.front().answer->size();
    ended_.pop_front();
  }
}

void ValueTable::timeOutGather(const std::string& key, const std::shared_ptr<Waiter>& waiter) {
  auto& gather = gathers_.at(key);
  std::erase(gather.waiters,
             waiter);  // its value stays: others may still wait, with more patience
  const auto missing = missingFrom(gather);
  answer(waiter,
         Status(Code::kTimeout,
                fmt::format("{} did not come to '{}' in {} ({} of {} are here); look at their "
                            "logs, or give more time with rendezvous-timeout",
                            describeRanks(missing), key, base::formatDuration(waiter->timeout),
                            worldSize_ - missing.size(), worldSize_)));
  if (!gather.waiters.empty()) return;
  bytes_ -= gather.bytes;
  gathers_.erase(key);
}

void ValueTable::miss(Rank who, const Absence& absence) {
  absent_.insert_or_assign(who, absence);
  for (auto each = gathers_.begin(); each != gathers_.end();) {
    if (each->second.brought.contains(who)) {
      ++each;
      continue;
    }
    const Status lost(absence.code,
                      fmt::format("rank {} {} while the others wait for it at '{}': {}", index(who),
                                  absence.how, each->first, absence.why));
    for (const auto& waiter : each->second.waiters) answer(waiter, lost);
    bytes_ -= each->second.bytes;
    each = gathers_.erase(each);
  }
}

std::optional<ValueTable::Waiting> ValueTable::longestGather() const {
  const auto oldest =
      std::ranges::min_element(gathers_, {}, [](const auto& entry) { return entry.second.begun; });
  if (oldest == gathers_.end()) return std::nullopt;
  return Waiting{oldest->first, missingFrom(oldest->second), loop_.now() - oldest->second.begun};
}

}  // namespace sluice::rendezvous
