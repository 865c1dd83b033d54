// Keeps the notes that the ranks of a job leave for each other. It lies behind every Store, and
// knows ranks, but nothing of connections. Loop thread only; completions run on the loop, exactly
// once, never inside the call.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <sluice/base/ids.h>
#include <sluice/base/loop.h>
#include <sluice/base/status.h>

namespace sluice::rendezvous {

class ValueTable final {
 public:
  // The value is shared, since it may go to thousands of ranks.
  using Got = std::function<void(Result<std::shared_ptr<const std::string>>)>;

  // `largestBytes` bounds what the ranks can make the table hold.
  ValueTable(Loop& loop, uint32_t worldSize, size_t largestBytes = size_t{256} << 20)
      : loop_(loop), worldSize_(worldSize), largestBytes_(largestBytes) {}
  ~ValueTable();
  ValueTable(const ValueTable&) = delete;
  ValueTable& operator=(const ValueTable&) = delete;

  Status set(const std::string& key, std::string value);
  Result<std::shared_ptr<const std::string>> get(const std::string& key) const;

  // Waits until `key` is set.
  void wait(Rank who, const std::string& key, Duration timeout, Got got);

  // Adds the value of `who` to `key` and waits until every rank has added its own; the answer is
  // the list of all values (message.h). The key may then be used again. A rank whose connection
  // broke repeats the request with the same `id`: the value counts once, and a gathering that ended
  // meanwhile is answered again. An id of 0 is never a repetition.
  void gather(Rank who, uint32_t id, const std::string& key, std::string value, Duration timeout,
              Got got);

  // Forgets the requests that the rank waits for: its connection is gone, so nobody listens to the
  // answers. The values that it has brought stay.
  void disconnected(Rank who);

  // Tell the table that a rank came, or went, or was not let in and is given up. Gathers that still
  // wait for the value of a rank that went or was refused fail now, and later ones fail at once,
  // until it comes.
  void came(Rank who) { absent_.erase(who); }
  void went(Rank who, const std::string& why) { miss(who, {Code::kPeerLost, "is gone", why}); }
  void refused(Rank who, const std::string& why) {
    miss(who, {Code::kRefused, "was refused", why});
  }

  // The gather that has waited longest, for the log line that names the missing ranks.
  struct Waiting {
    std::string key;
    std::vector<Rank> missing;
    Duration since{};
  };
  std::optional<Waiting> longestGather() const;

 private:
  struct Waiter {
    Rank who;
    Got got;
    Duration timeout{};
    TimerId timer{};
    size_t bytes = 0;  // of bytes_
  };
  using Waiters = std::vector<std::shared_ptr<Waiter>>;
  struct Brought {
    uint32_t id;
    std::string value;
  };
  struct Gather {
    std::map<Rank, Brought> brought;
    Waiters waiters;
    TimePoint begun;
    size_t bytes = 0;  // of bytes_
  };
  // A gathering that has ended well, for ranks that did not get the answer.
  struct Ended {
    std::string key;
    std::map<Rank, uint32_t> ids;
    std::shared_ptr<const std::string> answer;
  };

  struct Absence {
    Code code;
    std::string_view how;  // "is gone"
    std::string why;
  };
  void miss(Rank who, const Absence& absence);

  using OnTimeout = void (ValueTable::*)(const std::string& key,
                                         const std::shared_ptr<Waiter>& waiter);
  std::shared_ptr<Waiter> addWaiter(Rank who, const std::string& key, Duration timeout, Got got,
                                    OnTimeout onTimeout);
  void answer(const std::shared_ptr<Waiter>& waiter,
              Result<std::shared_ptr<const std::string>> result);
  void forget(Rank who, Waiters& waiters);
  Status checkRoomFor(size_t bytes) const;
  void finish(const std::string& key);
  void timeOutWait(const std::string& key, const std::shared_ptr<Waiter>& waiter);
  void timeOutGather(const std::string& key, const std::shared_ptr<Waiter>& waiter);
  std::vector<Rank> missingFrom(const Gather& gather) const;

  Loop& loop_;
  const uint32_t worldSize_;
  const size_t largestBytes_;
  std::unordered_map<std::string, std::shared_ptr<const std::string>> values_;
  size_t bytes_ = 0;  // of keys, values, waits and gathers, as far as ranks can make it grow
  std::unordered_map<std::string, Waiters> waits_;
  std::map<std::string, Gather> gathers_;
  std::map<Rank, Absence> absent_;
  std::deque<Ended> ended_;  // oldest first
  size_t endedBytes_ = 0;
};

}  // namespace sluice::rendezvous
