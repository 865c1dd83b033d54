// The text that is handed to ip, tc, bridge and nft to build a lab and to change it. Pure: from a
// Layout and Faults to text, one batch per tool and namespace, so that a lab costs two processes
// per host, not twenty.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>

#include <tools/lab/layout.h>

namespace sluice::lab {

// Faults that are made on purpose. A packet that is cut off or dropped vanishes without an answer.
struct Faults {
  std::set<int> cutHosts;
  std::set<std::pair<int, int>> cutPairs;  // the smaller host first
  std::map<int, double> dropPercent;       // by host, of packets in each direction
  friend bool operator==(const Faults&, const Faults&) = default;
};

// The shaping of a link.
struct Shape {
  uint64_t rateBits;
  uint64_t burstBytes;  // may pass at once
  uint64_t queueBytes;  // may wait in the queue
};
Shape shapeFor(Rate rate);

std::string namespacesScript(const Layout& layout);  // ip -batch, in the machine's namespace
std::string switchScript(const Layout& layout);      // ip -batch, at the switch: bridge and links
std::string forwardingScript(const Layout& layout);  // bridge -batch, at the switch: who is where
std::string hostScript(const Layout& layout, int host);              // ip -batch, in the host
std::string hostShapingScript(Rate rate, Duration delay);            // tc -batch, in the host
std::string switchShapingScript(const std::map<int, Rate>& byHost);  // tc -batch, at the switch
std::string faultScript(const Faults& faults);  // nft -f, at the switch: all faults

}  // namespace sluice::lab
