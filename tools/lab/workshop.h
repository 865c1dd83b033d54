// One lab while it is made, changed or removed: the lock that this needs, the lab's realm, and the
// system's tools at work in it. Only Lab uses this file.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <sluice/base/net/fd.h>
#include <sluice/base/status.h>
#include <tools/lab/lab.h>
#include <tools/lab/realm.h>
#include <tools/lab/state.h>

namespace sluice::lab {

// The files of all labs of this user. Only one program changes labs at a time: tools inherit the
// lock, so it is held until the last of them has ended, even if this process is killed.
struct LockedStore {
  StateStore files;
  net::Fd lock;
};

// Waits for the lock, and forgets the labs whose keeper was killed.
Result<LockedStore> lockStore();

class Workshop final {
 public:
  static Result<Workshop> open(const std::string& lab);

  const StateStore& files() const { return store_.files; }
  bool isWhole(const State& state) const;
  Result<net::Fd> openHost(int host) const;
  // Gives up the lock. REQUIRES: this object is not used any more.
  Result<Realm> leave() &&;

  // Makes everything that the layout says. `lifeline`: see Lab::up.
  Status build(const Layout& layout, int lifeline, const Progress& progress);
  Status shape(const std::map<int, Rate>& byHost, Duration delay) const;
  Status impose(const Faults& faults) const;
  // Ends the processes in the lab, and removes all of it that is there, but for its files. Returns
  // true iff there was anything.
  Result<bool> clear(const Progress& progress);

 private:
  struct Tool {
    std::vector<std::string> command;
    std::string input;
  };

  Workshop(std::string lab, LockedStore store, std::optional<Realm> realm)
      : lab_(std::move(lab)), store_(std::move(store)), realm_(std::move(realm)) {}

  Status gone() const;
  Status inRealm(const Tool& tool) const;
  Status inside(const std::string& network, const Tool& tool) const;
  Status atSwitch(const Tool& tool) const;
  Status inHost(int host, const Tool& tool) const;
  Status checkDelayWorks() const;
  Status makeHost(const Layout& layout, int host) const;

  std::string lab_;
  LockedStore store_;
  std::optional<Realm> realm_;  // empty: an ordinary user's lab that is not up
};

}  // namespace sluice::lab
