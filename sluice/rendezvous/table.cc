#include <sluice/rendezvous/table.h>

#include <algorithm>

#include <fmt/format.h>

#include <sluice/base/units.h>
#include <sluice/rendezvous/message.h>
#include <sluice/rendezvous/rank_list.h>

namespace sluice::rendezvous {
namespace {

constexpr size_t kLargestTableBytes = size_t{256} << 20;

}  // namespace

Table::~Table() {
  const Status ended(Code::kCancelled, "the rendezvous has ended");
  for (auto& [key, waiters] : std::exchange(waits_, {})) {
    for (const auto& waiter : waiters) answer(waiter, ended);
  }
  for (auto& [key, gather] : std::exchange(gathers_, {})) {
    for (const auto& waiter : gather.waiters) answer(waiter, ended);
  }
}

Status Table::set(const std::string& key, std::string value) {
  SLUICE_RETURN_IF_ERROR(checkSizes(key, value));
  auto& slot = values_[key];
  const size_t before = slot ? slot->size() : 0;
  if (bytes_ - before + value.size() > kLargestTableBytes) {
    return {Code::kUnavailable, fmt::format("the rendezvous is full: it holds {} already",
                                            base::formatBytes(kLargestTableBytes))};
  }
  bytes_ += value.size() - before;
  slot = std::make_shared<const std::string>(std::move(value));
  if (auto node = waits_.extract(key)) {
    for (const auto& waiter : node.mapped()) answer(waiter, slot);
  }
  return base::ok();
}

Result<std::shared_ptr<const std::string>> Table::get(const std::string& key) const {
  const auto found = values_.find(key);
  if (found == values_.end() || !found->second) {
    return Status(Code::kNotFound, fmt::format("nobody has set '{}'", key));
  }
  return found->second;
}

std::shared_ptr<Table::Waiter> Table::addWaiter(const std::string& key, Duration timeout, Got got,
                                                OnTimeout onTimeout) {
  auto waiter = std::make_shared<Waiter>(Waiter{std::move(got), timeout, {}});
  waiter->timer = loop_.after(timeout, [this, key, onTimeout, weak = std::weak_ptr(waiter)] {
    if (const auto self = weak.lock()) (this->*onTimeout)(key, self);
  });
  return waiter;
}

void Table::answer(const std::shared_ptr<Waiter>& waiter, Result<std::shared_ptr<const std::string>> result) {
  loop_.cancel(waiter->timer);
  loop_.post([waiter, result = std::move(result)] { waiter->got(result); });
}

void Table::wait(const std::string& key, Duration timeout, Got got) {
  SLUICE_DCHECK(loop_.inLoop());
  if (auto value = get(key); value.isOk()) {
    loop_.post([got = std::move(got), value] { got(value); });
    return;
  }
  waits_[key].push_back(addWaiter(key, timeout, std::move(got), &Table::timeOutWait));
}

void Table::timeOutWait(const std::string& key, const std::shared_ptr<Waiter>& waiter) {
  auto& waiters = waits_.at(key);
  std::erase(waiters, waiter);
  if (waiters.empty()) waits_.erase(key);
  answer(waiter, Status(Code::kTimeout, fmt::format("nobody has set '{}' in {}", key,
                                                    base::formatDuration(waiter->timeout))));
}

std::vector<Rank> Table::missingFrom(const Gather& gather) const {
  std::vector<Rank> missing;
  for (uint32_t r = 0; r < worldSize_; ++r) {
    if (!gather.brought.contains(Rank{r})) missing.push_back(Rank{r});
  }
  return missing;
}

void Table::gather(Rank who, const std::string& key, std::string value, Duration timeout, Got got) {
  SLUICE_DCHECK(loop_.inLoop());
  const auto refuse = [&](Status why) {
    loop_.post([got = std::move(got), why = std::move(why)] { got(why); });
  };
  if (const Status sizes = checkSizes(key, value); !sizes.isOk()) return refuse(sizes);
  auto& gather = gathers_[key];
  if (gather.brought.empty()) gather.begun = loop_.now();
  if (!gather.brought.emplace(who, std::move(value)).second) {
    return refuse(
        {Code::kAlreadyExists, fmt::format("rank {} has brought its '{}' already", index(who), key)});
  }
  gather.waiters.push_back(addWaiter(key, timeout, std::move(got), &Table::timeOutGather));
  for (const auto& [rank, absence] : absent_) {
    if (!gather.brought.contains(rank)) return miss(rank, Absence(absence));
  }
  if (gather.brought.size() < worldSize_) return;
  std::vector<std::string> values;
  values.reserve(worldSize_);
  for (auto& [rank, brought] : gather.brought) values.push_back(std::move(brought));
  const auto all = std::make_shared<const std::string>(encodeList(values));
  const auto node = gathers_.extract(key);
  for (const auto& waiter : node.mapped().waiters) answer(waiter, all);
}

void Table::timeOutGather(const std::string& key, const std::shared_ptr<Waiter>& waiter) {
  auto& gather = gathers_.at(key);
  std::erase(gather.waiters, waiter);  // what it brought stays: others may still wait with more patience
  const auto missing = missingFrom(gather);
  answer(waiter, Status(Code::kTimeout,
                        fmt::format("{} did not come to '{}' in {} ({} of {} are here); look at their "
                                    "logs, or give more time with rendezvous-timeout",
                                    describeRanks(missing), key, base::formatDuration(waiter->timeout),
                                    worldSize_ - missing.size(), worldSize_)));
  if (gather.waiters.empty()) gathers_.erase(key);
}

void Table::miss(Rank who, const Absence& absence) {
  absent_.insert_or_assign(who, absence);
  for (auto each = gathers_.begin(); each != gathers_.end();) {
    if (each->second.brought.contains(who)) {
      ++each;
      continue;
    }
    const Status lost(absence.code, fmt::format("rank {} {} while the others wait for it at '{}': {}",
                                                index(who), absence.how, each->first, absence.why));
    for (const auto& waiter : each->second.waiters) answer(waiter, lost);
    each = gathers_.erase(each);
  }
}

std::optional<Table::Waiting> Table::longestGather() const {
  const auto oldest =
      std::ranges::min_element(gathers_, {}, [](const auto& entry) { return entry.second.begun; });
  if (oldest == gathers_.end()) return std::nullopt;
  return Waiting{oldest->first, missingFrom(oldest->second), loop_.now() - oldest->second.begun};
}

}  // namespace sluice::rendezvous
