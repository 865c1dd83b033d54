#include <sluice/pytorch/group_communicator.h>

#include <fmt/format.h>

#include <sluice/algorithms/reduction/reduction_options.h>
#include <sluice/base/await.h>
#include <sluice/base/log.h>
#include <sluice/base/options.h>
#include <sluice/base/units.h>
#include <sluice/join/rendezvous/find_master.h>
#include <sluice/join/rendezvous/interface.h>
#include <sluice/join/rendezvous/launch.h>
#include <sluice/session/job_parts.h>
#include <sluice/session/make_fabric.h>

namespace sluice::pytorch {

struct GroupCommunicator::Place {
  std::unique_ptr<session::JobParts> job;  // outlives the communicator, which uses its loop
  std::unique_ptr<collective::Communicator> communicator;
};

namespace {

Result<std::vector<collective::MethodCost>> readMethods(const base::Config& config) {
  if (config.text(option::kCollective) == "auto")
    return collective::parseMethodCosts(config.text(option::kCollectiveCosts));
  SLUICE_ASSIGN_OR_RETURN(const auto method,
                          collective::parseMethod(config.text(option::kCollective)));
  return std::vector{collective::MethodCost{.method = method}};
}

}  // namespace

Result<std::shared_ptr<GroupCommunicator>> GroupCommunicator::join(
    const base::Config::Values& options, const base::Config::Values& environment, Duration atMost,
    std::function<Status()> interruption, const std::function<Status(uint16_t)>& published) {
  SLUICE_ASSIGN_OR_RETURN(base::Config config, base::Config::read(options, environment));
  SLUICE_RETURN_IF_ERROR(base::setLogLevels(config.text(option::kLog)));
  if (!config.text(option::kMembers).empty()) {
    return Status(Code::kInvalidArgument,
                  "the backend 'sluice' of torch.distributed cannot go on without a lost member; "
                  "leave out members, or use sluice.distribute()");
  }
  // The caller's limit covers the whole of joining, so the rendezvous may not take longer than
  // that, whatever its own option says.
  if (config.duration(option::kRendezvousTimeout) > atMost) {
    SLUICE_RETURN_IF_ERROR(config.set(option::kRendezvousTimeout, base::formatDuration(atMost)));
  }
  SLUICE_ASSIGN_OR_RETURN(auto methods, readMethods(config));
  const size_t stagingBytes = config.bytes(option::kStagingBytes);
  PlacePtr place = std::make_unique<Place>();
  SLUICE_ASSIGN_OR_RETURN(place->job, session::JobParts::join(std::move(config), environment,
                                                              std::move(interruption), published));
  SLUICE_ASSIGN_OR_RETURN(
      place->communicator,
      collective::Communicator::start(
          [&](fabric::Receiver& receiver) -> Result<std::unique_ptr<fabric::Fabric>> {
            SLUICE_ASSIGN_OR_RETURN(auto fabric,
                                    session::makeFabric(*place->job, "c10d", receiver));
            return std::unique_ptr<fabric::Fabric>(std::move(fabric));
          }));
  // From this barrier on, every rank hears of the loss of every other rank, even of one that it
  // never talks with.
  SLUICE_RETURN_IF_ERROR(base::awaitStatus(place->job->loop(), [&](auto done) {
    place->communicator->barrier({.atMost = atMost, .memory = nullptr, .done = std::move(done)});
  }));
  return std::shared_ptr<GroupCommunicator>(
      new GroupCommunicator(std::move(place), std::move(methods), stagingBytes));
}

GroupCommunicator::GroupCommunicator(PlacePtr place, std::vector<collective::MethodCost> methods,
                                     size_t stagingBytes)
    : rank_(place->job->rank()),
      worldSize_(place->job->worldSize()),
      methods_(std::move(methods)),
      stagingBytes_(stagingBytes),
      place_(std::move(place)) {}

GroupCommunicator::~GroupCommunicator() {
  leave();
}

Result<std::string> GroupCommunicator::ownAddress(const base::Config::Values& options,
                                                  const base::Config::Values& environment,
                                                  const std::function<Status()>& interruption) {
  SLUICE_ASSIGN_OR_RETURN(const base::Config config, base::Config::read(options, environment));
  SLUICE_ASSIGN_OR_RETURN(const auto launch, rendezvous::readLaunch(environment));
  SLUICE_ASSIGN_OR_RETURN(
      const auto master,
      rendezvous::findMaster(launch, base::RealClock(), config.duration(option::kRendezvousTimeout),
                             interruption));
  SLUICE_ASSIGN_OR_RETURN(const auto interfaces, rendezvous::listInterfaces());
  SLUICE_ASSIGN_OR_RETURN(const auto own,
                          rendezvous::chooseInterface(interfaces, master.addresses.front(),
                                                      config.text(option::kIface)));
  return own.address.host();
}

collective::Method GroupCommunicator::methodFor(size_t bytes) const {
  return collective::cheapest(methods_, static_cast<double>(bytes));
}

Status GroupCommunicator::submit(std::function<void(collective::Communicator&)> call) {
  // A forked child has the object but neither its loop nor its threads: a posted call would
  // wait for ever.
  if (process_.isInherited())
    return base::forkedStatus(fmt::format("rank {} of a sluice job", rank_));
  return place_.with([&](const PlacePtr& place) -> Status {
    if (place == nullptr) return {Code::kCancelled, "the process group has been shut down"};
    place->job->loop().post([call = std::move(call), communicator = place->communicator.get()] {
      call(*communicator);
    });
    return base::ok();
  });
}

void GroupCommunicator::leave() {
  if (process_.isInherited()) return;
  // Destroy it outside the lock: calls that end now may make new ones, which are refused.
  PlacePtr place;
  place_.with([&](PlacePtr& here) { place.swap(here); });
}

}  // namespace sluice::pytorch
