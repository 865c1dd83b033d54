#include <tools/lab/layout.h>

#include <arpa/inet.h>

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include <sluice/base/text.h>

namespace sluice::lab {
namespace {

std::string dotted(uint32_t address) {
  return fmt::format("{}.{}.{}.{}", address >> 24, (address >> 16) & 255, (address >> 8) & 255,
                     address & 255);
}

bool isPlainName(std::string_view name, size_t longest) {
  const auto isAllowed = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_';
  };
  return !name.empty() && name.size() <= longest && std::ranges::all_of(name, isAllowed);
}

bool isDigits(std::string_view text) {
  return !text.empty() &&
         std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c) != 0; });
}

}  // namespace

uint32_t Subnet::hostCapacity() const {
  return (uint32_t{1} << (32 - prefix)) - 2;  // without the network's own address and the broadcast
}

std::string Subnet::toString() const {
  return fmt::format("{}/{}", dotted(base), prefix);
}

Result<Subnet> parseSubnet(std::string_view text) {
  const auto wrong = [&](std::string_view why) {
    return Status(Code::kInvalidArgument,
                  fmt::format("subnet '{}' {}; write one as 10.77.0.0/16", text, why));
  };
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return wrong("has no prefix length");
  in_addr address{};
  if (inet_pton(AF_INET, std::string(text.substr(0, slash)).c_str(), &address) != 1) {
    return wrong("does not begin with an IPv4 address");
  }
  const auto prefix = base::parseInteger(text.substr(slash + 1));
  if (!prefix.isOk() || *prefix < 8 || *prefix > 30)
    return wrong("needs a prefix length from 8 to 30");
  Subnet subnet{ntohl(address.s_addr), static_cast<int>(*prefix)};
  if ((subnet.base & ((uint32_t{1} << (32 - subnet.prefix)) - 1)) != 0)
    return wrong("has host bits set");
  return subnet;
}

Status checkName(std::string_view name) {
  if (!isPlainName(name, 32)) {
    return {
        Code::kInvalidArgument,
        fmt::format("lab name '{}' will not do: use 1 to 32 letters, digits, '-' or '_'", name)};
  }
  return base::ok();
}

Status Layout::check() const {
  SLUICE_RETURN_IF_ERROR(checkName(name));
  if (!congestionControl.empty() && !isPlainName(congestionControl, 15)) {  // TCP_CA_NAME_MAX
    return {Code::kInvalidArgument,
            fmt::format(
                "invalid congestion control '{}'; see net.ipv4.tcp_available_congestion_control",
                base::printable(congestionControl))};
  }
  if (hosts < 1 || hosts > kMaxHosts) {
    return {Code::kInvalidArgument,
            fmt::format("{} hosts will not do: ask for 1 to {}", hosts, kMaxHosts)};
  }
  if (etcd < 0 || etcd >= hosts) {
    return {
        Code::kInvalidArgument,
        fmt::format("{} etcd servers will not do: ask for 3 or 5, or 1 to try something", etcd)};
  }
  if (static_cast<uint32_t>(hosts) > subnet.hostCapacity()) {
    return {Code::kInvalidArgument,
            fmt::format("subnet {} has room for {} hosts, not {}: take a larger one",
                        subnet.toString(), subnet.hostCapacity(), hosts)};
  }
  // tbf's burst of 128 KiB would be more than a second's worth below this.
  if (rate != kUnshaped && rate.bitsPerSecond < 1'000'000) {
    return {Code::kInvalidArgument,
            fmt::format("rate {} is too low to shape: take 1mbit or more", base::formatRate(rate))};
  }
  return base::ok();
}

std::string switchNamespace(std::string_view lab) {
  return fmt::format("sluice-{}-switch", lab);
}

std::string hostNamespace(std::string_view lab, int host) {
  return fmt::format("sluice-{}-h{}", lab, host);
}

bool isNamespaceOf(std::string_view lab, std::string_view name) {
  const std::string prefix = fmt::format("sluice-{}-", lab);
  if (!name.starts_with(prefix)) return false;
  name.remove_prefix(prefix.size());
  return name == "switch" || (name.starts_with('h') && isDigits(name.substr(1)));
}

std::string switchPort(int host) {
  return fmt::format("h{}", host);
}

std::string hostAddress(const Subnet& subnet, int host) {
  return dotted(subnet.base + static_cast<uint32_t>(host) + 1);
}

std::string hardwareAddress(int host) {
  return fmt::format("02:51:ce:00:{:02x}:{:02x}", host >> 8, host & 255);
}

}  // namespace sluice::lab
