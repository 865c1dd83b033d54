// The fabric that the configuration asks for, connected to the fabrics of all other ranks.
#pragma once

#include <memory>
#include <string>

#include <sluice/fabric/watch/watched_fabric.h>
#include <sluice/session/job_parts.h>

namespace sluice::session {

// Makes the fabric. Every rank calls it with the same `name`.
Result<std::unique_ptr<fabric::WatchedFabric>> makeFabric(JobParts& job, const std::string& name,
                                                          fabric::Receiver& receiver);

}  // namespace sluice::session
