#include <tools/lab/scripts.h>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace sluice::lab {
namespace {

constexpr std::string_view kBridge = "br0";

// Returns the part of a tc command after "root" or "parent 1:1"; `handle` is the queue's own name.
std::string queueing(Rate rate, std::string_view handle) {
  if (rate == kUnshaped) return "noqueue";
  const Shape shape = shapeFor(rate);
  return fmt::format("handle {} tbf rate {}bit burst {} limit {}", handle, shape.rateBits,
                     shape.burstBytes, shape.queueBytes);
}

}  // namespace

Shape shapeFor(Rate rate) {
  const uint64_t bytesPerMillisecond = rate.bitsPerSecond / 8 / 1000;
  return {
      .rateBits = rate.bitsPerSecond,
      // Segments of up to 64 KiB pass as one, and tokens must last while the timer that refills
      // them is late on a busy machine: two segments, and at least a millisecond.
      .burstBytes = std::max<uint64_t>(128 << 10, bytesPerMillisecond),
      // The queue is like that of a switch port: long enough that one flow fills the link and four
      // share it, short enough that urgent data waits about 5 ms at worst. The least length is four
      // segments.
      .queueBytes = std::max<uint64_t>(256 << 10, 5 * bytesPerMillisecond),
  };
}

std::string namespacesScript(const Layout& layout) {
  std::string script = fmt::format("netns add {}\n", switchNamespace(layout.name));
  for (int host = 0; host < layout.hosts; ++host) {
    script += fmt::format("netns add {}\n", hostNamespace(layout.name, host));
  }
  return script;
}

std::string switchScript(const Layout& layout) {
  std::string script = fmt::format(
      "link add {0} type bridge mcast_snooping 0\n"
      "link set {0} addrgenmode none up\n",
      kBridge);
  for (int host = 0; host < layout.hosts; ++host) {
    script += fmt::format(
        "link add {0} type veth peer name {1} address {2} netns {3}\n"
        "link set {0} addrgenmode none master {4} up\n"
        // Addresses are fixed (forwardingScript): a host that is cut off must not turn into traffic
        // that is flooded to all others.
        "link set {0} type bridge_slave learning off flood off\n",
        switchPort(host), kHostInterface, hardwareAddress(host), hostNamespace(layout.name, host),
        kBridge);
  }
  return script;
}

std::string forwardingScript(const Layout& layout) {
  std::string script;
  for (int host = 0; host < layout.hosts; ++host) {
    script += fmt::format("fdb replace {} dev {} master static\n", hardwareAddress(host),
                          switchPort(host));
  }
  return script;
}

std::string hostScript(const Layout& layout, int host) {
  const std::string address = hostAddress(layout.subnet, host);
  std::string script = fmt::format(
      "link set lo up\n"
      "link set {0} addrgenmode none up\n"
      "addr add {1}/{2} dev {0}\n",
      kHostInterface, address, layout.subnet.prefix);
  if (!layout.congestionControl.empty()) {
    // Set it by route: the sysctl of a namespace takes only algorithms that the machine allows to
    // everybody.
    script +=
        fmt::format("route replace {} dev {} proto kernel scope link src {} congctl {}\n",
                    layout.subnet.toString(), kHostInterface, address, layout.congestionControl);
  }
  // Set the neighbours' addresses without ARP: a cut must look like silence, and an unanswered ARP
  // question would come back to the sockets as "no route to host".
  for (int other = 0; other < layout.hosts; ++other) {
    if (other == host) continue;
    script +=
        fmt::format("neigh replace {} lladdr {} dev {} nud permanent\n",
                    hostAddress(layout.subnet, other), hardwareAddress(other), kHostInterface);
  }
  return script;
}

std::string hostShapingScript(Rate rate, Duration delay) {
  if (delay == Duration(0)) {
    return fmt::format("qdisc replace dev {} root {}\n", kHostInterface, queueing(rate, "1:"));
  }
  // netem holds all packets on the way. Its limit is in packets, and must be too high to drop any.
  const std::string netem = fmt::format(
      "qdisc replace dev {} root handle 1: netem delay {}us limit 1000000\n", kHostInterface,
      std::chrono::duration_cast<std::chrono::microseconds>(delay).count());
  if (rate == kUnshaped) return netem;
  return netem +
         fmt::format("qdisc replace dev {} parent 1:1 {}\n", kHostInterface, queueing(rate, "10:"));
}

std::string switchShapingScript(const std::map<int, Rate>& byHost) {
  std::string script;
  for (const auto& [host, rate] : byHost) {
    script += fmt::format("qdisc replace dev {} root {}\n", switchPort(host), queueing(rate, "1:"));
  }
  return script;
}

std::string faultScript(const Faults& faults) {
  std::string rules;
  const auto dropBothWays = [&](int host, std::string_view when) {
    rules += fmt::format("    iifname \"{0}\" {1}drop\n    oifname \"{0}\" {1}drop\n",
                         switchPort(host), when);
  };
  for (const int host : faults.cutHosts) dropBothWays(host, "");
  for (const auto& [a, b] : faults.cutPairs) {
    rules += fmt::format(
        "    iifname \"{0}\" oifname \"{1}\" drop\n    iifname \"{1}\" oifname \"{0}\" drop\n",
        switchPort(a), switchPort(b));
  }
  for (const auto& [host, percent] : faults.dropPercent) {
    dropBothWays(host, fmt::format("numgen random mod 100000 < {} ", std::lround(percent * 1000)));
  }
  // Use one transaction: the new rules replace the old ones in one moment.
  return fmt::format(
      "table bridge sluice\n"
      "delete table bridge sluice\n"
      "table bridge sluice {{\n"
      "  chain forward {{\n"
      "    type filter hook forward priority 0;\n"
      "{}"
      "  }}\n"
      "}}\n",
      rules);
}

}  // namespace sluice::lab
