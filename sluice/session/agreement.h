// Checks that all ranks have made the same plan. Every rank makes its own, and they compare hashes
// before the first step. If the plans differ, every rank learns the first difference in one line.
#pragma once

#include <sluice/base/status.h>
#include <sluice/data/plan/plan.h>
#include <sluice/session/job_parts.h>

namespace sluice::session {

// Every rank calls it with the same `name`.
Status agreeOn(const plan::Plan& plan, const std::string& name, JobParts& job);

}  // namespace sluice::session
