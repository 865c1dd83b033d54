// Every rank makes the plan for itself; before the first step they agree, by hash, that it is the
// same. If it is not, everybody learns the first difference in one line.
#pragma once

#include <sluice/base/status.h>
#include <sluice/plan/plan.h>
#include <sluice/session/job_parts.h>

namespace sluice::session {

// Every rank calls it with the same `name`.
Status agreeOn(const plan::Plan& plan, const std::string& name, JobParts& job);

}  // namespace sluice::session
