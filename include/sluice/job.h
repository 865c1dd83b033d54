/// @file
/// This process's place in the job: its rank, and the way to the other ranks. A process has one
/// Job; sessions (session.h) train models in it.
///
/// @code
///   auto job = sluice::Job::join();      // under torchrun, mpirun or srun; alone, a job of one
///   if (!job.isOk()) ...
///   (*job)->rank();
/// @endcode
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <sluice/config.h>
#include <sluice/model.h>
#include <sluice/status.h>

namespace sluice {

namespace session {
class JobParts;
}

/// A function that is called again and again while a thread waits for other ranks. Its first error
/// ends the wait. A program that catches Ctrl-C returns an error here.
using Interruption = std::function<Status()>;

/// The options of Job::join(). Every field has a default.
struct JoinOptions {
  Config::Values environment{};  ///< Replaces the process's environment, unless it is empty.
  Interruption interruption{};   ///< Ends waits for other ranks, here and later.
  /// Receives the port of rank 0, if its MASTER_PORT is 0, before rank 0 waits for other ranks.
  std::function<Status(uint16_t port)> published{};
};

/// Thread-safe: several threads may use a Job at once.
class SLUICE_API Job final {
 public:
  /// Joins with the options of the environment (Config::fromEnvironment).
  static Result<std::unique_ptr<Job>> join();
  /// Meets the other ranks that the launcher has started. Returns the Job when all are here, or an
  /// error that says why they are not.
  static Result<std::unique_ptr<Job>> join(const Config& config, JoinOptions options = {});

  /// Leaves the job. REQUIRES: its sessions are gone.
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  /// Returns which rank this process is.
  Rank rank() const;
  /// Returns how many ranks the job has now.
  uint32_t worldSize() const;
  /// Returns true iff SIGTERM has come and the option leave-on-term is on: leave after this step.
  bool isAskedToLeave() const;

  /// Contributes `value`, and returns every rank's value for this key, in rank order. Every rank
  /// calls it.
  Result<std::vector<std::string>> gather(const std::string& key, const std::string& value);

 private:
  friend struct session::Inside;
  explicit Job(std::unique_ptr<session::JobParts> inside);
  std::unique_ptr<session::JobParts> inside_;
};

}  // namespace sluice
