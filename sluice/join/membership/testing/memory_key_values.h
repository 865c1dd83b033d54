// One member's way to a MemoryTable. It behaves as a client of a distant store does: a request whose
// answer is lost, or that finds the store unavailable, is tried again until its deadline. Runs on any
// loop, and is deterministic on a ManualLoop.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <sluice/base/loop.h>
#include <sluice/join/membership/key_values.h>
#include <sluice/join/membership/testing/memory_table.h>

namespace sluice::membership {

class MemoryKeyValues final : public KeyValues {
 public:
  // REQUIRES: `loop` outlives this object.
  MemoryKeyValues(Loop& loop, std::shared_ptr<MemoryTable> table)
      : loop_(loop), table_(std::move(table)) {}
  ~MemoryKeyValues() override;
  MemoryKeyValues(const MemoryKeyValues&) = delete;
  MemoryKeyValues& operator=(const MemoryKeyValues&) = delete;

  // Cuts this member alone off; empty: ends that. Loop thread only.
  void setUnavailable(std::string why) { unavailable_ = std::move(why); }

  void append(const Append& append, TimePoint deadline, Got<Appended> got) override;
  void list(const KeyRange& range, size_t most, TimePoint deadline, Got<Listing> got) override;
  void removeUnchanged(const Entry& entry, TimePoint deadline,
                       std::function<void(Status)> done) override;
  void keep(const std::string& key, const std::string& value,
            std::function<void(bool isThere)> onKept) override;
  void release(TimePoint deadline, std::function<void(Status)> done) override;
  void watch(const KeyRange& range, std::function<void(const Entry&)> onPut) override;
  void rewatch() override {}
  const Status& health() const override { return health_; }
  void onHealth(std::function<void(const Status&)> changed) override {
    onHealth_ = std::move(changed);
  }

 private:
  struct Request {
    Task apply;                       // does it in the table, and keeps the answer
    std::function<void(Status)> end;  // hands the answer, or the error, to the caller
    TimerId deadline{};
    std::string fault = "no answer has come";
  };
  struct Kept {
    std::string key;
    std::string value;
    std::function<void(bool)> onKept;
    bool isThere = false;
  };

  void start(Task apply, TimePoint deadline, std::function<void(Status)> end);
  template <typename T>
  void start(std::function<T(MemoryTable&)> ask, TimePoint deadline, Got<T> got);
  void attempt(uint64_t request);
  void arrive(uint64_t request);
  void end(uint64_t request, const Status& status);
  void renew();
  std::string whyUnavailable() const;
  void setHealth(const Status& health);
  TimerId afterIfAlive(Duration delay, Task task);

  Loop& loop_;
  const std::shared_ptr<MemoryTable> table_;
  std::string unavailable_;
  std::map<uint64_t, Request> requests_;
  uint64_t nextRequest_ = 1;
  std::optional<Kept> kept_;
  std::optional<uint64_t> watch_;
  Status health_;
  std::function<void(const Status&)> onHealth_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace sluice::membership
