// A store as the contract suite (contract_suite.h) needs it: it makes members' views of a job, and
// plays the operator and the stranger.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include <sluice/base/loop.h>
#include <sluice/join/membership/membership.h>
#include <sluice/join/membership/store_membership.h>

namespace sluice::membership::contract {

// Every call is made on the test's thread.
class StoreUnderTest {
 public:
  virtual ~StoreUnderTest() = default;

  // Runs `task` on the loop and waits for its end.
  virtual void onLoop(const Task& task) = 0;
  // Lets time pass until `holds()`, which is asked on the loop; false if it does not come to hold
  // within `patience`.
  virtual bool runUntil(const std::function<bool()>& holds, Duration patience) = 0;
  virtual TimePoint now() = 0;

  // On the loop, inside onLoop() only.
  virtual std::unique_ptr<Membership> make(const StoreOptions& options) = 0;

  virtual void put(const std::string& key, const std::string& value) = 0;
  virtual void remove(const std::string& key) = 0;
  virtual std::optional<std::string> get(const std::string& key) = 0;
  virtual void endLeases() = 0;
  virtual void setAvailable(bool isAvailable) = 0;
};

struct StoreCase {
  std::string name;
  std::function<std::unique_ptr<StoreUnderTest>()> make;
};

inline std::string caseName(const testing::TestParamInfo<StoreCase>& info) {
  return info.param.name;
}

}  // namespace sluice::membership::contract
