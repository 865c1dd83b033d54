#include <sluice/session/make_fabric.h>

#include <sluice/fabric/loopback/loopback_fabric.h>
#include <sluice/fabric/tcp/tcp_fabric.h>

namespace sluice::session {
namespace {

Result<std::unique_ptr<fabric::Fabric>> makeTcp(Job& job, const std::string& name,
                                                fabric::Receiver& receiver) {
  SLUICE_ASSIGN_OR_RETURN(auto listener, fabric::TcpListener::open(job.address()));
  SLUICE_ASSIGN_OR_RETURN(const auto notes, job.gather("fabric/" + name, listener.address().toString()));
  fabric::TcpMembership membership{.rank = job.rank(), .epoch = Epoch{0}, .addresses = {}, .key = job.key()};
  for (const auto& note : notes) {
    SLUICE_ASSIGN_OR_RETURN(auto address, Address::parse(note));
    membership.addresses.push_back(std::move(address));
  }
  return fabric::makeTcpFabric(job.loop(), std::move(listener), std::move(membership),
                               fabric::readTcpOptions(job.config()), receiver);
}

}  // namespace

Result<std::unique_ptr<fabric::Fabric>> makeFabric(Job& job, const std::string& name,
                                                   fabric::Receiver& receiver) {
  if (job.worldSize() == 1) return fabric::LoopbackHub(1).join(Rank{0}, job.loop(), receiver);
  return makeTcp(job, name, receiver);
}

}  // namespace sluice::session
