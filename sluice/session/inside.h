// The way from a public Config, Job or Session to its parts, for these classes themselves, tools and
// tests.
#pragma once

#include <memory>
#include <utility>

#include <sluice/config.h>
#include <sluice/job.h>
#include <sluice/session.h>

#include <sluice/session/session_parts.h>

namespace sluice::session {

struct Inside final {
  static const base::Config& of(const Config& config) { return *config.inside_; }
  static JobParts& of(Job& job) { return *job.inside_; }
  static SessionParts& of(const Session& session) { return *session.inside_; }

  // Does what Session::open() does; `collective` is as in SessionParts::open().
  static Result<std::unique_ptr<Session>> open(JobParts& job, SessionOptions options,
                                               collective::Collective* collective = nullptr) {
    SLUICE_ASSIGN_OR_RETURN(auto parts, SessionParts::open(job, std::move(options), collective));
    return std::unique_ptr<Session>(new Session(std::move(parts)));
  }

  static Config wrap(base::Config config) { return Config(std::move(config)); }
  static std::unique_ptr<Job> wrap(std::unique_ptr<JobParts> job) {
    return std::unique_ptr<Job>(new Job(std::move(job)));
  }
};

}  // namespace sluice::session
