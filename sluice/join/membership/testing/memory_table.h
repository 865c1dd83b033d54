// A store in this process's memory, for tests and simulations: several members share one table, each
// by a MemoryKeyValues of its own. It can be slow, lose answers and be unavailable, and all that it
// does follows from a seed. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sluice/base/loop.h>
#include <sluice/base/mutex.h>
#include <sluice/join/membership/key_values.h>

namespace sluice::membership {

struct MemoryFaults {
  uint64_t seed = 0;
  Duration longestDelay{0};  // a request, an answer and a notice take up to this each
  double lostAnswers = 0;    // the share of answers that are lost after the request was done
  double lostNotices = 0;    // the share of puts that a watch does not report
  double lateRequests = 0;   // the share of requests that arrive up to longestLate later
  Duration longestLate{0};   // their sender has asked again by then, or given up
};

class MemoryTable final {
 public:
  void setFaults(const MemoryFaults& faults);
  void setUnavailable(std::string why);  // empty: available
  std::string whyUnavailable() const;

  // Draw what happens to the next request, answer or notice.
  Duration drawDelay();
  bool drawLostAnswer();
  std::optional<Duration> drawLateness();  // empty: the request is on time

  // The operations of a KeyValues.
  Appended append(const Append& append, TimePoint now);
  Listing list(const KeyRange& range, size_t most, TimePoint now);
  void removeUnchanged(const Entry& entry);
  // Returns true iff the key was there still.
  bool renew(const std::string& key, const std::string& value, TimePoint expires, TimePoint now);

  // Reports puts in `range` on `loop`, until removeWatch(). REQUIRES: the loop lives until then.
  uint64_t addWatch(Loop& loop, const KeyRange& range, std::function<void(const Entry&)> onPut);
  void removeWatch(uint64_t watch);

  // Change the table behind the members' backs, as an operator or a stranger may.
  void put(const std::string& key, const std::string& value);
  void remove(const std::string& key);
  std::optional<std::string> get(const std::string& key) const;
  void removeAll();
  void endLeases();
  struct Cell {
    std::string value;
    std::optional<TimePoint> expires = {};
    uint64_t revision = 0;
    uint64_t created = 0;
  };
  struct Backup {
    std::map<std::string, Cell, std::less<>> cells;
    uint64_t revision = 0;
  };
  Backup backup() const;
  void restore(const Backup& backup);

 private:
  struct Watcher {
    Loop* loop;
    KeyRange range;
    std::function<void(const Entry&)> onPut;
  };
  struct State {
    Backup data;
    MemoryFaults faults;
    uint64_t draws = 0;
    std::string unavailable;
    std::map<uint64_t, Watcher> watchers;
    uint64_t nextWatcher = 1;

    uint64_t draw();
    void expire(TimePoint now);
    void put(const std::string& key, Cell cell);
    bool has(const Latch& latch) const;
    Listing list(const KeyRange& range, size_t most) const;
  };

  base::Guarded<State> state_;
};

}  // namespace sluice::membership
