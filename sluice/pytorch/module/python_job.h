// A job as Python holds it.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <sluice/base/config.h>
#include <sluice/base/log.h>
#include <sluice/base/options.h>
#include <sluice/pytorch/module/conversions.h>
#include <sluice/session/job_parts.h>

namespace sluice::pytorch {

// The default size of slices from PyTorch. The core that handles them also computes: a few large
// ones disturb it less than many small ones, which a network of its own would prefer.
inline constexpr std::string_view kSliceElements = "50000";

// This process's place in the job, until close(). Its thread must end before the process's static
// objects go, which Python alone does not see to.
class PythonJob final {
 public:
  explicit PythonJob(std::unique_ptr<session::JobParts> job) : parts_(std::move(job)) {}

  // The loop of a job may need the GIL (a process group that is written in Python), so nobody waits
  // for it with the GIL held.
  ~PythonJob() { close(); }
  PythonJob(const PythonJob&) = delete;
  PythonJob& operator=(const PythonJob&) = delete;

  session::JobParts& parts() const {
    if (parts_ == nullptr) throw std::runtime_error("the job has ended");
    throwIfError(parts_->checkProcess());
    return *parts_;
  }

  // Tell the other ranks what the training thread does. leave() gets what enter() has returned. Do
  // nothing once the job is closed: a model may outlive it.
  uint64_t enter(base::Doing doing, uint64_t step) {
    if (parts_ == nullptr) return 0;
    return static_cast<uint64_t>(parts_->trainingThread().enter(doing, step));
  }
  void leave(uint64_t before) {
    if (parts_ != nullptr) parts_->trainingThread().leave(base::TrainingThread::Before{before});
  }

  // Does nothing once the job is closed.
  void abandon(const std::string& why) {
    if (parts_ == nullptr) return;
    const py::gil_scoped_release release;
    parts_->abandon(why);
  }

  void announceEnd() const {
    session::JobParts& job = parts();
    throwIfError(withoutGil([&] { return job.announceEnd(); }));
  }

  // REQUIRES: every session has left or been abandoned.
  void close() {
    if (parts_ == nullptr) return;
    const py::gil_scoped_release release;
    parts_.reset();
  }

 private:
  std::unique_ptr<session::JobParts> parts_;
};

inline std::vector<uint32_t> numbersOf(const std::vector<Rank>& ranks) {
  std::vector<uint32_t> numbers;
  for (const Rank rank : ranks) numbers.push_back(index(rank));
  return numbers;
}

// Calls Python. An exception there stays set, for throwIfError().
inline session::JobParts::Publish publishBy(const py::object& published) {
  if (published.is_none()) return {};
  return [&published](uint16_t port) -> Status {
    const py::gil_scoped_acquire gil;
    try {
      published(port);
      return base::ok();
    } catch (py::error_already_set& error) {
      error.restore();
      return {Code::kUnavailable, "the port of rank 0 could not be published"};
    }
  };
}

// `options` as Config's flags; `environment` as the launcher has set it; `published` as with
// Job::join().
inline std::unique_ptr<PythonJob> join(const base::Config::Values& options,
                                       const base::Config::Values& environment,
                                       const py::object& published) {
  base::Config config = valueOrThrow(base::Config::read(options, environment));
  throwIfError(base::setLogLevels(config.text(option::kLog)));
  if (config.integer(option::kSliceElements) == 0) {
    throwIfError(config.set(option::kSliceElements, kSliceElements));
  }
  for (const auto& warning : config.warnings()) log("session").warn("{}", warning);
  const auto publish = publishBy(published);
  const py::gil_scoped_release release;
  auto job = session::JobParts::join(std::move(config), environment, checkSignals, publish);
  const py::gil_scoped_acquire acquire;
  return std::make_unique<PythonJob>(valueOrThrow(std::move(job)));
}

}  // namespace sluice::pytorch
