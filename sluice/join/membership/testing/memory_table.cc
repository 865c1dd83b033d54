#include <sluice/join/membership/testing/memory_table.h>

#include <algorithm>
#include <utility>

#include <sluice/base/random.h>

namespace sluice::membership {

uint64_t MemoryTable::State::draw() {
  return base::splitmix64(faults.seed, draws++);
}

void MemoryTable::State::expire(TimePoint now) {
  std::erase_if(data.cells, [&](const auto& cell) {
    return cell.second.expires && *cell.second.expires <= now;
  });
}

void MemoryTable::State::put(const std::string& key, Cell cell) {
  cell.revision = ++data.revision;
  const auto there = data.cells.find(key);
  cell.created = there == data.cells.end() ? cell.revision : there->second.created;
  const Entry entry{key, cell.value, cell.revision, cell.created};
  data.cells[key] = std::move(cell);
  for (const auto& [id, watcher] : watchers) {
    if (!watcher.range.contains(key)) continue;
    if (base::fromZeroToOne(draw()) < faults.lostNotices) continue;
    // The notice is posted and not called, because the table's lock is held here and the
    // watcher may call the table.
    watcher.loop->post([onPut = watcher.onPut, entry] { onPut(entry); });
  }
}

bool MemoryTable::State::has(const Latch& latch) const {
  const auto found = data.cells.find(latch.key);
  return found != data.cells.end() && found->second.created == latch.created;
}

Listing MemoryTable::State::list(const KeyRange& range, size_t most) const {
  Listing listing{.entries = {}, .revision = data.revision};
  const auto first = data.cells.lower_bound(range.first);
  for (auto at = data.cells.lower_bound(range.end);
       at != first && listing.entries.size() < most && range.first < range.end;) {
    --at;
    listing.entries.push_back(
        {at->first, at->second.value, at->second.revision, at->second.created});
  }
  return listing;
}

void MemoryTable::setFaults(const MemoryFaults& faults) {
  state_.with([&](State& state) {
    state.faults = faults;
    state.draws = 0;
  });
}

void MemoryTable::setUnavailable(std::string why) {
  state_.with([&](State& state) { state.unavailable = std::move(why); });
}

std::string MemoryTable::whyUnavailable() const {
  return state_.with([](const State& state) { return state.unavailable; });
}

Duration MemoryTable::drawDelay() {
  return state_.with([](State& state) {
    if (state.faults.longestDelay == Duration::zero()) return Duration::zero();
    return Duration(static_cast<Duration::rep>(
        state.draw() % static_cast<uint64_t>(state.faults.longestDelay.count() + 1)));
  });
}

bool MemoryTable::drawLostAnswer() {
  return state_.with([](State& state) {
    return state.faults.lostAnswers > 0 &&
           base::fromZeroToOne(state.draw()) < state.faults.lostAnswers;
  });
}

std::optional<Duration> MemoryTable::drawLateness() {
  return state_.with([](State& state) -> std::optional<Duration> {
    const MemoryFaults& faults = state.faults;
    if (faults.lateRequests <= 0 || base::fromZeroToOne(state.draw()) >= faults.lateRequests)
      return std::nullopt;
    return Duration(static_cast<Duration::rep>(
        state.draw() % static_cast<uint64_t>(faults.longestLate.count() + 1)));
  });
}

Appended MemoryTable::append(const Append& append, TimePoint now) {
  constexpr size_t kShown = 8;
  return state_.with([&](State& state) {
    state.expire(now);
    Listing there = state.list(append.absent, kShown);
    const bool mayFollow = !append.opened || state.has(*append.opened);
    // Both conditions and all changes are under one lock, which plays the part of the store's
    // transaction.
    if (!there.entries.empty() || !mayFollow)
      return Appended{.done = false, .there = std::move(there)};
    if (append.opened) state.data.cells.erase(append.opened->key);
    state.put(append.key, {.value = append.value});
    // All that is put at once has one revision.
    state.data.cells[append.latch] = {.value = {},
                                      .expires = {},
                                      .revision = state.data.revision,
                                      .created = state.data.revision};
    std::erase_if(state.data.cells,
                  [&](const auto& cell) { return append.forgotten.contains(cell.first); });
    return Appended{.done = true, .there = {.entries = {}, .revision = state.data.revision}};
  });
}

Listing MemoryTable::list(const KeyRange& range, size_t most, TimePoint now) {
  return state_.with([&](State& state) {
    state.expire(now);
    return state.list(range, most);
  });
}

void MemoryTable::removeUnchanged(const Entry& entry) {
  state_.with([&](State& state) {
    const auto found = state.data.cells.find(entry.key);
    if (found == state.data.cells.end() || found->second.revision != entry.revision) return;
    state.data.cells.erase(found);
    ++state.data.revision;
  });
}

bool MemoryTable::renew(const std::string& key, const std::string& value, TimePoint expires,
                        TimePoint now) {
  return state_.with([&](State& state) {
    state.expire(now);
    const auto found = state.data.cells.find(key);
    if (found == state.data.cells.end()) {
      state.put(key, {.value = value, .expires = expires});
      return false;
    }
    found->second.expires = expires;
    return true;
  });
}

uint64_t MemoryTable::addWatch(Loop& loop, const KeyRange& range,
                               std::function<void(const Entry&)> onPut) {
  return state_.with([&](State& state) {
    state.watchers.emplace(state.nextWatcher, Watcher{&loop, range, std::move(onPut)});
    return state.nextWatcher++;
  });
}

void MemoryTable::removeWatch(uint64_t watch) {
  state_.with([&](State& state) { state.watchers.erase(watch); });
}

void MemoryTable::put(const std::string& key, const std::string& value) {
  state_.with([&](State& state) { state.put(key, {.value = value}); });
}

void MemoryTable::remove(const std::string& key) {
  state_.with([&](State& state) {
    state.data.cells.erase(key);
    ++state.data.revision;
  });
}

std::optional<std::string> MemoryTable::get(const std::string& key) const {
  return state_.with([&](const State& state) -> std::optional<std::string> {
    const auto found = state.data.cells.find(key);
    if (found == state.data.cells.end()) return std::nullopt;
    return found->second.value;
  });
}

void MemoryTable::removeAll() {
  state_.with([](State& state) {
    state.data.cells.clear();
    ++state.data.revision;
  });
}

void MemoryTable::endLeases() {
  state_.with([](State& state) {
    std::erase_if(state.data.cells,
                  [](const auto& cell) { return cell.second.expires.has_value(); });
    ++state.data.revision;
  });
}

MemoryTable::Backup MemoryTable::backup() const {
  return state_.with([](const State& state) { return state.data; });
}

void MemoryTable::restore(const Backup& backup) {
  state_.with([&](State& state) { state.data = backup; });
}

}  // namespace sluice::membership
