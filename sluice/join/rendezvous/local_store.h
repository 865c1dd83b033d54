// The Store of a rank that lives in the same process and loop as the table: rank 0, or every rank
// in a test.
#pragma once

#include <sluice/base/ids.h>
#include <sluice/base/loop.h>
#include <sluice/join/rendezvous/store.h>
#include <sluice/join/rendezvous/table.h>

namespace sluice::rendezvous {

class LocalStore final : public Store {
 public:
  // REQUIRES: `table` outlives the store.
  LocalStore(Loop& loop, ValueTable& table, Rank rank) : loop_(loop), table_(table), rank_(rank) {}

  void set(std::string key, std::string value, Done done) override;
  void get(std::string key, Got got) override;
  void wait(std::string key, Duration timeout, Got got) override;
  void gather(std::string key, std::string value, Duration timeout, GotAll got) override;

 private:
  Loop& loop_;
  ValueTable& table_;
  const Rank rank_;
};

}  // namespace sluice::rendezvous
