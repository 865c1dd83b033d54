#include <sluice/transport/fabric/ucx/ucx_fabric.h>

#include <optional>
#include <utility>

#include <sluice/base/check.h>
#include <sluice/transport/fabric/common.h>
#include <sluice/transport/fabric/ucx/node.h>
#include <sluice/transport/fabric/ucx/settings.h>

namespace sluice::fabric {
namespace {

using ucx::Node;

struct Opened {
  std::shared_ptr<Node> node;
  UcxAddress address;
};

Result<Opened> openFromLoop(const UcxOptions& options, net::EpollLoop& loop) {
  SLUICE_ASSIGN_OR_RETURN(auto worker, ucx::Worker::open(options));
  SLUICE_ASSIGN_OR_RETURN(auto address, worker->address());
  SLUICE_ASSIGN_OR_RETURN(const int eventFd, worker->eventFd());
  return Opened{std::make_shared<Node>(options, loop, std::move(worker), eventFd),
                std::move(address)};
}

}  // namespace

Result<std::unique_ptr<UcxPort>> UcxPort::open(const UcxOptions& options, net::EpollLoop& loop) {
  SLUICE_CHECK(index(options.rank) < options.worldSize, index(options.rank), options.worldSize);
  SLUICE_RETURN_IF_ERROR(ucx::checkTrusted(options));
  // The worker is opened on the loop's thread: UCX wants one thread for all that it does.
  std::optional<Result<Opened>> opened;
  SLUICE_RETURN_IF_ERROR(runAndWait(loop, [&] { opened = openFromLoop(options, loop); }));
  if (!opened->isOk()) return opened->status();
  return std::unique_ptr<UcxPort>(new UcxPort((*opened)->node, (*opened)->address));
}

UcxPort::UcxPort(std::shared_ptr<Node> node, UcxAddress address)
    : node_(std::move(node)), address_(std::move(address)) {}

UcxPort::~UcxPort() {
  if (node_) runBeforeFreeing(node_->loop(), [node = node_] { node->abort(); });
}

std::unique_ptr<NodeFabric> UcxPort::start(Receiver& receiver, FindUcxAddress findAddress) {
  SLUICE_CHECK(node_ != nullptr, "a port is started once");
  node_->loop().post([node = node_, &receiver, findAddress = std::move(findAddress)]() mutable {
    node->start(receiver, std::move(findAddress));
  });
  return std::make_unique<NodeFabric>(std::exchange(node_, nullptr));
}

}  // namespace sluice::fabric
