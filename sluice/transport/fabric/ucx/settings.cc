#include <sluice/transport/fabric/ucx/settings.h>

#include <algorithm>

#include <sluice/base/options.h>
#include <sluice/base/text.h>

namespace sluice::fabric {

UcxOptions ucxOptions(const base::Config& config) {
  UcxOptions options;
  options.isNetworkTrusted = config.isOn(option::kTrustedNetwork);
  options.transports = config.text(option::kUcxTransports);
  options.device = config.text(option::kIface);
  options.checksPayloads = config.text(option::kPayloadCheck) != "off";
  return options;
}

namespace ucx {
namespace {

constexpr size_t kRoomForHeaders = 1024;
constexpr size_t kSmallestSegment = size_t{64}
                                    << 10;  // UCX's own; it refuses less than it sends in

}  // namespace

std::vector<UcxSetting> settingsFor(const UcxOptions& options) {
  // Left to itself UCX takes shared memory between network namespaces, whose wake-ups do not cross
  // them.
  std::vector<UcxSetting> settings{{"TLS", options.transports}};
  if (!options.device.empty()) settings.push_back({"NET_DEVICES", options.device});
  const auto transports = base::split(options.transports, ',');
  if (std::ranges::find(transports, "tcp") == transports.end()) return settings;
  const std::string segment =
      std::to_string(std::max(options.eagerBytes + kRoomForHeaders, kSmallestSegment));
  // An eager message and its headers fit one segment: no pieces have to be put together.
  settings.push_back({"TX_SEG_SIZE", segment});
  settings.push_back({"RX_SEG_SIZE", segment});
  // Without puts a stranger at the port has one request less to crash the process with.
  settings.push_back({"PUT_ENABLE", "n"});
  // A rank that cannot be reached must not hold up the loop while the kernel tries.
  settings.push_back({"CONN_NB", "y"});
  // UCX handles one socket at a time: UCX 1.13 aborts when handling one event closes a socket that
  // another event of the same batch is for.
  settings.push_back({"MAX_POLL", "1"});
  // UCX 1.13 ends a zero-copy send twice, and aborts, when a TCP peer dies in the middle of it.
  // With copies it does not; the other transports have no such fault and keep sending from the
  // user's memory.
  if (transports.size() == 1) settings.push_back({"ZCOPY_THRESH", "inf"});
  return settings;
}

Status checkTrusted(const UcxOptions& options) {
  if (options.isNetworkTrusted) return {};
  return {
      Code::kPermissionDenied,
      "UCX lets in whoever reaches its port, and anybody there can crash this process; use "
      "--fabric tcp, or say --trusted-network on if only this job's hosts can reach each other"};
}

}  // namespace ucx
}  // namespace sluice::fabric
