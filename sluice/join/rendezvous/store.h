// A rank leaves notes for the others in a Store and reads theirs: addresses, plan hashes, barriers.
// Rank 0's table is behind it today; a c10d Store or etcd may be tomorrow.
//
// Loop thread only. Every call completes exactly once, on the loop, never inside the call: at the
// latest, with kCancelled, when the store or the table behind it is destroyed. Keys have 1 to 256
// bytes, values at most 64 KiB.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <sluice/base/clock.h>
#include <sluice/base/status.h>

namespace sluice::rendezvous {

class Store {
 public:
  using Done = std::function<void(Status)>;
  using Got = std::function<void(Result<std::string>)>;
  using GotAll = std::function<void(Result<std::vector<std::string>>)>;

  virtual ~Store() = default;

  virtual void set(std::string key, std::string value, Done done) = 0;
  virtual void get(std::string key, Got got) = 0;  // kNotFound if nobody has set it
  virtual void wait(std::string key, Duration timeout, Got got) = 0;  // until somebody has set it

  // Brings `value` and waits until every rank has brought its own; the answer is in rank order. A
  // barrier is a gather of empty values. The key may be used again afterwards. A timeout names the
  // ranks that are missing; a rank that goes away meanwhile is named at once.
  virtual void gather(std::string key, std::string value, Duration timeout, GotAll got) = 0;
};

}  // namespace sluice::rendezvous
