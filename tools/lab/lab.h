// A cluster on one Linux machine: hosts with an address and a shaped link each, behind one switch.
// This is the API that `sluice lab`, the tests and the benchmarks use. It needs root, or a kernel that
// lets users make namespaces (realm.h). Every user has labs of their own.
//
// A Lab is a name. Its state lies in a file (state.h), and every call takes a lock, so several
// programs may use the same lab. Calls wait for the system's tools, for some milliseconds per host.
// Any thread may call.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <sluice/base/net/fd.h>
#include <sluice/base/status.h>
#include <tools/lab/launcher.h>
#include <tools/lab/layout.h>
#include <tools/lab/state.h>

namespace sluice::lab {

// Reports how far a long operation is; may be empty.
using Progress = std::function<void(int done, int total, std::string_view what)>;

// A host as it can be seen from outside.
struct Host {
  // Its network namespace: a name that `ip netns` knows, or a path if it is an ordinary user's.
  std::string network;
  std::vector<pid_t> processes;
};

class Lab final {
 public:
  // Removes the remains of a killed `up` of this name, and makes the lab. Returns kAlreadyExists if
  // the lab is there. An ordinary user's lab vanishes when the other end of the pipe `lifeline` is
  // closed, unless it is -1.
  static Result<Lab> up(const Layout& layout, const Progress& progress = {}, int lifeline = -1);

  static Result<Lab> open(const std::string& name);  // kNotFound if there is no such lab
  static Result<std::vector<std::string>> names();

  // Ends all processes in the lab and removes it, whole or in part. Returns true iff there was
  // anything to remove.
  static Result<bool> down(const std::string& name, const Progress& progress = {});

  const std::string& name() const { return name_; }
  Result<State> state() const;
  Result<std::vector<Host>> hosts() const;

  // Sets the rate of both directions, also while traffic runs.
  Status setRate(const std::vector<int>& hosts, Rate rate);
  // Cuts hosts off silently: packets vanish, and no connection is reset.
  Status cut(const std::vector<int>& hosts);
  Status cutBetween(int a, int b);
  // Loses each packet to or from the hosts with this probability; 0 stops it.
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

// A lab that the destructor removes. It gets a name of its own, so any number may exist at once. That
// of an ordinary user also vanishes with the process.
class TemporaryLab final {
 public:
  static Result<std::unique_ptr<TemporaryLab>> up(Layout layout);
  ~TemporaryLab();
  TemporaryLab(const TemporaryLab&) = delete;
  TemporaryLab& operator=(const TemporaryLab&) = delete;

  Lab& operator*() { return lab_; }
  Lab* operator->() { return &lab_; }

 private:
  TemporaryLab(Lab lab, net::Fd lifeline) : lab_(std::move(lab)), lifeline_(std::move(lifeline)) {}
  Lab lab_;
  net::Fd lifeline_;
};

}  // namespace sluice::lab
