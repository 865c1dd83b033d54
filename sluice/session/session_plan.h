// The plan of one session: the job's options with the session's own in their place, and the plan
// that follows from them. Every rank makes its own, and they compare hashes before the first step.
// If the plans differ, every rank learns the first difference in one line. Any thread.
#pragma once

#include <string>

#include <sluice/base/config.h>
#include <sluice/base/status.h>
#include <sluice/data/optimizer/optimizer_spec.h>
#include <sluice/data/plan/plan.h>
#include <sluice/session.h>
#include <sluice/session/job_parts.h>

namespace sluice::session {

struct SessionPlan {
  base::Config config;  // the job's, with SessionOptions::settings
  plan::Plan plan;
};

// Meets no other rank.
Result<SessionPlan> makePlan(const SessionOptions& options, const optimizer::OptimizerSpec& update,
                             const JobParts& job);

// Checks that all ranks have made the same plan. Every rank calls it with the same `name`.
Status agreeOn(const plan::Plan& plan, const std::string& name, JobParts& job);

}  // namespace sluice::session
