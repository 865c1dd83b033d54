#include <sluice/sim/host_costs.h>

#include <fmt/format.h>

namespace sluice::sim {
namespace {

// Estimates, not yet calibrated. The costs of bytes add up to the CPU seconds that `sluice bench
// replay` has reported for four ranks of ResNet-50 with plain TCP, the kernel's work among them.
// Those of a message and of a seal are guesses: nothing was measured with slices of two sizes or
// with TLS.
constexpr HostCosts kEstimated{.messageSent = 3'000,
                               .messageReceived = 3'000,
                               .byteSent = 0.9,
                               .byteReceived = 1.1,
                               .byteSummed = 0.1,
                               .byteUpdated = 0.3};
constexpr double kSealedByte = 0.4;

}  // namespace

Result<HostCosts> parseCosts(std::string_view name) {
  if (name == "free") return HostCosts{};
  if (name == "plain") return kEstimated;
  if (name == "encrypted") {
    HostCosts costs = kEstimated;
    costs.byteSent += kSealedByte;
    costs.byteReceived += kSealedByte;
    return costs;
  }
  return Status(Code::kInvalidArgument,
                fmt::format("--cpu is '{}'; give plain, encrypted or free", name));
}

}  // namespace sluice::sim
