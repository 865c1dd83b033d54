#include <sluice/job.h>

#include <sluice/base/log.h>
#include <sluice/base/options.h>
#include <sluice/session/inside.h>

namespace sluice {

Job::Job(std::unique_ptr<session::JobParts> inside) : inside_(std::move(inside)) {}
Job::~Job() = default;

Result<std::unique_ptr<Job>> Job::join() {
  SLUICE_ASSIGN_OR_RETURN(const Config config, Config::fromEnvironment());
  return join(config);
}

Result<std::unique_ptr<Job>> Job::join(const Config& config, JoinOptions options) {
  const base::Config& inside = session::Inside::of(config);
  SLUICE_RETURN_IF_ERROR(base::setLogLevels(inside.text(option::kLog)));
  for (const auto& warning : config.warnings()) log("session").warn("{}", warning);
  const Config::Values environment =
      options.environment.empty() ? base::processEnvironment() : std::move(options.environment);
  SLUICE_ASSIGN_OR_RETURN(
      auto parts, session::JobParts::join(inside, environment, std::move(options.interruption),
                                          options.published));
  return session::Inside::wrap(std::move(parts));
}

Rank Job::rank() const {
  return inside_->rank();
}

uint32_t Job::worldSize() const {
  return inside_->worldSize();
}

bool Job::isAskedToLeave() const {
  return inside_->isAskedToLeave();
}

Result<std::vector<std::string>> Job::gather(const std::string& key, const std::string& value) {
  return inside_->gather(key, value);
}

}  // namespace sluice
