// The store behind a Membership: keys in order of their bytes, with values. This is the small part of
// etcd that membership needs; MemoryKeyValues has it for tests and simulations.
//
// The threads, the callbacks and the time limits are those of Membership (membership.h). A request
// is tried again until its deadline if its outcome is unknown, so it may be done twice.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <sluice/base/clock.h>
#include <sluice/base/status.h>

namespace sluice::membership {

// The keys from `first` to before `end`.
struct KeyRange {
  std::string first;
  std::string end;
  bool contains(std::string_view key) const { return key >= first && key < end; }
};
// All keys that begin with `prefix`. REQUIRES: its last character is not '\xff'.
KeyRange keysUnder(std::string prefix);

struct Entry {
  std::string key;
  std::string value = {};
  uint64_t revision = 0;  // of the last change of this key
  uint64_t created = 0;   // the revision in which the key came to be there
};

struct Listing {
  std::vector<Entry> entries;  // the highest keys first
  uint64_t revision = 0;       // of the store when it was read
};

// A key without a value that is made once and removed once.
struct Latch {
  std::string key;
  uint64_t created = 0;
};

// Puts `key` and makes `latch`, if no key exists in `absent` and `opened` exists since the revision
// that it names. Then removes `opened` and the keys in `forgotten`.
struct Append {
  std::string key;
  std::string value;
  std::string latch;
  KeyRange absent;
  std::optional<Latch> opened;
  KeyRange forgotten;
};
struct Appended {
  bool done = false;
  Listing there;  // iff not done: the highest keys in `absent`; empty if `opened` is the reason
};

class KeyValues {
 public:
  template <typename T>
  using Got = std::function<void(Result<T>)>;

  virtual ~KeyValues() = default;

  virtual void append(const Append& append, TimePoint deadline, Got<Appended> got) = 0;
  virtual void list(const KeyRange& range, size_t most, TimePoint deadline, Got<Listing> got) = 0;
  // Removes a key if it is still as in `entry`.
  virtual void removeUnchanged(const Entry& entry, TimePoint deadline,
                               std::function<void(Status)> done) = 0;

  // Keeps the key in the store, under a lease, until release(). `onKept` runs whenever the key has
  // come to be there or was found to be gone. REQUIRES: called once.
  virtual void keep(const std::string& key, const std::string& value,
                    std::function<void(bool isThere)> onKept) = 0;
  virtual void release(TimePoint deadline, std::function<void(Status)> done) = 0;

  // Reports puts in `range` soon after they are made, perhaps twice, perhaps not at all: the caller
  // also lists the range now and then. REQUIRES: called once.
  virtual void watch(const KeyRange& range, std::function<void(const Entry&)> onPut) = 0;
  // The caller has found a put by list() that the watch should have reported: begins it anew.
  virtual void rewatch() = 0;

  virtual const Status& health() const = 0;
  virtual void onHealth(std::function<void(const Status&)> changed) = 0;  // called once
};

}  // namespace sluice::membership
