#include <sluice/join/membership/store_address.h>

#include <algorithm>

#include <fmt/format.h>

#include <sluice/base/net/address.h>
#include <sluice/base/options.h>
#include <sluice/base/text.h>
#include <sluice/base/units.h>

namespace sluice::membership {
namespace {

constexpr std::string_view kPlainScheme = "etcd://";
constexpr std::string_view kTlsScheme = "etcds://";
constexpr size_t kMostServers = 32;

bool isHostName(std::string_view host) {
  return !host.empty() && host.size() <= 253 && std::ranges::all_of(host, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_';
  });
}

// Returns the server with its port; empty if the text names no server.
std::string serverOf(std::string_view text) {
  if (text.starts_with('[')) {
    const std::string whole =
        text.ends_with(']') ? fmt::format("{}:{}", text, kEtcdPort) : std::string(text);
    const auto address = net::Address::parse(whole);
    return address.isOk() && address->port() != 0 ? address->toString() : std::string();
  }
  const auto colon = text.find(':');
  if (!isHostName(text.substr(0, colon))) return {};
  if (colon == std::string_view::npos) return fmt::format("{}:{}", text, kEtcdPort);
  const auto port = base::parseInteger(text.substr(colon + 1));
  if (!port.isOk() || *port < 1 || *port > 65535) return {};
  return fmt::format("{}:{}", text.substr(0, colon), *port);
}

}  // namespace

std::string EtcdAddress::toString() const {
  return fmt::format("{}{}", hasTls ? kTlsScheme : kPlainScheme, fmt::join(servers, ","));
}

Result<EtcdAddress> parseEtcdAddress(std::string_view text) {
  if (text.find('@') != std::string_view::npos)
    return Status(Code::kInvalidArgument, std::string(base::kNoUserInAddress));
  const Status wrong(
      Code::kInvalidArgument,
      fmt::format("'{}' names no etcd servers; write etcd://a,b:2379,c, or etcds://a,b,c for TLS",
                  base::printable(text.substr(0, 256))));
  EtcdAddress address;
  if (text.starts_with(kTlsScheme)) {
    address.hasTls = true;
    text.remove_prefix(kTlsScheme.size());
  } else if (text.starts_with(kPlainScheme)) {
    text.remove_prefix(kPlainScheme.size());
  } else {
    return wrong;
  }
  for (const auto piece : base::split(text, ',')) {
    std::string server = serverOf(base::trim(piece));
    if (server.empty() || address.servers.size() == kMostServers) return wrong;
    if (std::ranges::find(address.servers, server) == address.servers.end())
      address.servers.push_back(std::move(server));
  }
  return address;
}

}  // namespace sluice::membership
