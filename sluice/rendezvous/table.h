// The notes that the ranks of a job leave for each other: what lies behind every Store. It knows ranks, but
// nothing of connections. Loop thread only; completions run on the loop, exactly once, never inside the call.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <sluice/base/loop.h>
#include <sluice/base/status.h>
#include <sluice/plan/ids.h>

namespace sluice::rendezvous {

class Table final {
 public:
  // Shared, since one value may go to thousands of ranks.
  using Got = std::function<void(Result<std::shared_ptr<const std::string>>)>;

  Table(Loop& loop, uint32_t worldSize) : loop_(loop), worldSize_(worldSize) {}
  ~Table();
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  Status set(const std::string& key, std::string value);
  Result<std::shared_ptr<const std::string>> get(const std::string& key) const;

  // Waits until `key` is set.
  void wait(const std::string& key, Duration timeout, Got got);

  // Adds what `who` brings to `key` and waits until every rank has; the answer is the list of all
  // (message.h). The key may then be used again.
  void gather(Rank who, const std::string& key, std::string value, Duration timeout, Got got);

  // A rank came, or went, or was not let in and is given up: gathers that still wait for what it would bring
  // fail now, and later ones at once, until it comes.
  void came(Rank who) { absent_.erase(who); }
  void went(Rank who, const std::string& why) { miss(who, {Code::kPeerLost, "is gone", why}); }
  void refused(Rank who, const std::string& why) { miss(who, {Code::kRefused, "was refused", why}); }

  // For the line that says whom everybody is waiting for: the gather that has waited longest.
  struct Waiting {
    std::string key;
    std::vector<Rank> missing;
    Duration since{};
  };
  std::optional<Waiting> longestGather() const;

 private:
  struct Waiter {
    Got got;
    Duration timeout{};
    TimerId timer{};
  };
  using Waiters = std::vector<std::shared_ptr<Waiter>>;
  struct Gather {
    std::map<Rank, std::string> brought;
    Waiters waiters;
    TimePoint begun;
  };

  struct Absence {
    Code code;
    std::string_view how;  // "is gone"
    std::string why;
  };
  void miss(Rank who, const Absence& absence);

  using OnTimeout = void (Table::*)(const std::string& key, const std::shared_ptr<Waiter>& waiter);
  std::shared_ptr<Waiter> addWaiter(const std::string& key, Duration timeout, Got got, OnTimeout onTimeout);
  void answer(const std::shared_ptr<Waiter>& waiter, Result<std::shared_ptr<const std::string>> result);
  void timeOutWait(const std::string& key, const std::shared_ptr<Waiter>& waiter);
  void timeOutGather(const std::string& key, const std::shared_ptr<Waiter>& waiter);
  std::vector<Rank> missingFrom(const Gather& gather) const;

  Loop& loop_;
  const uint32_t worldSize_;
  std::unordered_map<std::string, std::shared_ptr<const std::string>> values_;
  size_t bytes_ = 0;
  std::unordered_map<std::string, Waiters> waits_;
  std::map<std::string, Gather> gathers_;
  std::map<Rank, Absence> absent_;
};

}  // namespace sluice::rendezvous
