#include <sluice/session/make_fabric.h>

#include <algorithm>

#include <sluice/base/byte_io.h>
#include <sluice/base/options.h>
#include <sluice/session/protection.h>
#include <sluice/transport/fabric/loopback/loopback_fabric.h>
#include <sluice/transport/fabric/tcp/tcp_fabric.h>
#include <sluice/transport/fabric/ucx/ucx_fabric.h>
#include <sluice/transport/fabric/watch/watched_fabric.h>

namespace sluice::session {
namespace {

Result<std::unique_ptr<fabric::NodeFabric>> connectTcp(JobParts& job, const EpochPlace& place,
                                                       fabric::TcpListener listener,
                                                       fabric::Receiver& receiver) {
  fabric::TcpMembership membership{.rank = place.rank,
                                   .epoch = place.epoch,
                                   .addresses = {},
                                   .key = job.key(),
                                   .door = job.door()};
  SLUICE_ASSIGN_OR_RETURN(membership.addresses, net::parseAddresses(place.addresses));
  fabric::TcpOptions options = fabric::readTcpOptions(job.config());
  // A busy rank accepts a connection only when its loop turns. The watchman notices sooner if the
  // rank is not there.
  options.connectDeadline =
      std::max(options.connectDeadline, job.config().duration(option::kBusyLimit));
  return fabric::makeTcpFabric(job.loop(), std::move(listener), std::move(membership), options,
                               receiver);
}

Result<std::unique_ptr<fabric::NodeFabric>> makeTcp(JobParts& job, const std::string& name,
                                                    fabric::Receiver& receiver) {
  SLUICE_ASSIGN_OR_RETURN(auto listener, fabric::TcpListener::open(job.address()));
  SLUICE_ASSIGN_OR_RETURN(const auto notes,
                          job.gather("fabric/" + name, listener.address().toString()));
  return connectTcp(job, {.rank = job.rank(), .epoch = Epoch{0}, .addresses = notes},
                    std::move(listener), receiver);
}

Result<std::unique_ptr<fabric::NodeFabric>> makeUcx(JobParts& job, const std::string& name,
                                                    fabric::Receiver& receiver) {
  SLUICE_RETURN_IF_ERROR(checkProtectionOfUcx(job.config()));
  fabric::UcxOptions options = fabric::ucxOptions(job.config());
  options.rank = job.rank();
  options.worldSize = job.worldSize();
  options.jobKey = job.key();
  SLUICE_ASSIGN_OR_RETURN(const auto port, fabric::UcxPort::open(options, job.loop()));
  SLUICE_ASSIGN_OR_RETURN(auto notes, job.gather("fabric/" + name, base::textOf(port->address())));
  return port->start(receiver, [notes = std::move(notes)](Rank rank) -> Result<fabric::UcxAddress> {
    const auto bytes = std::as_bytes(std::span(notes.at(index(rank))));
    return fabric::UcxAddress(bytes.begin(), bytes.end());
  });
}

// Makes the fabric of a job of one.
Result<std::unique_ptr<fabric::NodeFabric>> makeLoopback(JobParts& job, const std::string&,
                                                         fabric::Receiver& receiver) {
  return fabric::LoopbackHub(1).join(Rank{0}, job.loop(), receiver);
}

}  // namespace

Result<std::unique_ptr<fabric::WatchedFabric>> makeFabric(JobParts& job, const std::string& name,
                                                          fabric::Receiver& receiver) {
  SLUICE_ASSIGN_OR_RETURN(const auto liveness, fabric::readLivenessOptions(job.config()));
  const auto makeEngine = job.worldSize() == 1                          ? makeLoopback
                          : job.config().text(option::kFabric) == "ucx" ? makeUcx
                                                                        : makeTcp;
  return fabric::WatchedFabric::make(
      job.loop(), liveness, receiver,
      [&](fabric::Receiver& watchman) { return makeEngine(job, name, watchman); }, job.pulse());
}

Result<std::unique_ptr<fabric::WatchedFabric>> makeEpochFabric(JobParts& job,
                                                               const EpochPlace& place,
                                                               fabric::TcpListener listener,
                                                               fabric::Receiver& receiver,
                                                               fabric::Pulse* pulse) {
  SLUICE_ASSIGN_OR_RETURN(const auto liveness, fabric::readLivenessOptions(job.config()));
  return fabric::WatchedFabric::make(
      job.loop(), liveness, receiver,
      [&](fabric::Receiver& watchman) -> Result<std::unique_ptr<fabric::NodeFabric>> {
        // An epoch may have shrunk to one member, who has nobody to connect to.
        if (place.addresses.size() == 1)
          return fabric::LoopbackHub(1).join(Rank{0}, job.loop(), watchman);
        return connectTcp(job, place, std::move(listener), watchman);
      },
      pulse);
}

}  // namespace sluice::session
