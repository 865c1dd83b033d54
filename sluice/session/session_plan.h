// The plan of one session: the job's options with the session's own in their place, and the plan
// that follows from them. Nothing here meets other ranks (agreement.h does). Any thread.
#pragma once

#include <sluice/session.h>

#include <sluice/base/config.h>
#include <sluice/data/optimizer/optimizer_spec.h>
#include <sluice/data/plan/plan.h>
#include <sluice/session/job_parts.h>

namespace sluice::session {

struct SessionPlan {
  base::Config config;  // the job's, with SessionOptions::settings
  plan::Plan plan;
};

Result<SessionPlan> makePlan(const SessionOptions& options, const optimizer::OptimizerSpec& update,
                             const JobParts& job);

}  // namespace sluice::session
