// The fabric that the configuration asks for, connected to the fabrics of all other ranks.
#pragma once

#include <memory>
#include <string>

#include <sluice/session/elastic/epochs.h>
#include <sluice/session/job_parts.h>
#include <sluice/transport/fabric/watch/watched_fabric.h>

namespace sluice::session {

// Makes the fabric. Every rank calls it with the same `name`.
Result<std::unique_ptr<fabric::WatchedFabric>> makeFabric(JobParts& job, const std::string& name,
                                                          fabric::Receiver& receiver);

// Makes the TCP fabric of an epoch, whose members have told each other their addresses. A job of one
// needs no addresses. Any thread.
Result<std::unique_ptr<fabric::WatchedFabric>> makeEpochFabric(JobParts& job,
                                                               const EpochPlace& place,
                                                               fabric::TcpListener listener,
                                                               fabric::Receiver& receiver,
                                                               fabric::Pulse* pulse);

}  // namespace sluice::session
