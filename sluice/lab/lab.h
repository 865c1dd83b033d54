// A cluster on one Linux machine: hosts with an address and a shaped link each, behind one switch.
// This is the API that `sluice lab`, the tests and the benchmarks use. It needs root.
//
// A Lab is a name; what is known of it lies in a file (state.h), and every call takes a lock, so
// several programs may use the same lab. Calls wait for the system's tools, for some milliseconds
// per host. Any thread.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <sluice/base/status.h>
#include <sluice/lab/launcher.h>
#include <sluice/lab/layout.h>
#include <sluice/lab/state.h>

namespace sluice::lab {

// Told how far a long operation is; may be empty.
using Progress = std::function<void(int done, int total, std::string_view what)>;

class Lab final {
 public:
  // Makes it. What a killed `up` of this name has left is removed first. kAlreadyExists if it is
  // there.
  static Result<Lab> up(const Layout& layout, const Progress& progress = {});

  static Result<Lab> open(const std::string& name);  // kNotFound if there is none
  static Result<std::vector<std::string>> names();

  // Ends what runs in it and removes it, whole or in part. Returns whether there was anything.
  static Result<bool> down(const std::string& name, const Progress& progress = {});

  const std::string& name() const { return name_; }
  Result<State> state() const;
  Result<std::map<int, std::vector<pid_t>>> processes() const;  // by host; ids as seen from outside

  // On running traffic, both directions.
  Status setRate(const std::vector<int>& hosts, Rate rate);
  // Silent: packets vanish, nothing is reset.
  Status cut(const std::vector<int>& hosts);
  Status cutBetween(int a, int b);
  // Each packet to or from the host is lost with this probability. 0 stops it.
  Status drop(const std::vector<int>& hosts, double percent);
  // Ends all cuts and drops. Rates stay as they are.
  Status heal();

  // Runs a command on the hosts with RANK and its relatives set, and waits for its end: see
  // launcher.h.
  Result<int> run(RunOptions options) const;

  // Moves the calling process onto the host, for good. REQUIRES: no threads.
  Status enter(int host) const;

 private:
  explicit Lab(std::string name) : name_(std::move(name)) {}
  Status changeFaults(const std::function<Status(const State&, Faults&)>& change);

  std::string name_;
};

// A lab that is gone when the object is. Its name is chosen, so any number may exist at once.
class TemporaryLab final {
 public:
  static Result<std::unique_ptr<TemporaryLab>> up(Layout layout);
  ~TemporaryLab();
  TemporaryLab(const TemporaryLab&) = delete;
  TemporaryLab& operator=(const TemporaryLab&) = delete;

  Lab& operator*() { return lab_; }
  Lab* operator->() { return &lab_; }

 private:
  explicit TemporaryLab(Lab lab) : lab_(std::move(lab)) {}
  Lab lab_;
};

}  // namespace sluice::lab
