// The engine of a build without UCX (cmake -DSLUICE_UCX=OFF): it says so.
#include <sluice/transport/fabric/ucx/ucx_fabric.h>

#include <utility>

#include <sluice/base/check.h>

namespace sluice::fabric {

namespace ucx {
class Node final {};
}  // namespace ucx

UcxOptions ucxOptions(const base::Config&) {
  return {};
}

Result<std::unique_ptr<UcxPort>> UcxPort::open(const UcxOptions&, net::EpollLoop&) {
  return Status(Code::kUnavailable,
                "this sluice was built without UCX: use --fabric tcp, or build sluice from source "
                "(docs/compatibility.md)");
}
UcxPort::UcxPort(std::shared_ptr<ucx::Node> node, UcxAddress address)
    : node_(std::move(node)), address_(std::move(address)) {}
UcxPort::~UcxPort() = default;
std::unique_ptr<NodeFabric> UcxPort::start(Receiver&, FindUcxAddress) {
  SLUICE_CHECK(false, "there is no open port in a build without UCX");
  return nullptr;
}

}  // namespace sluice::fabric
