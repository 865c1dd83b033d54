#include <sluice/sim/cluster_bound.h>

#include <algorithm>

#include <sluice/bench/figures.h>
#include <sluice/timing/bounds.h>

namespace sluice::sim {
namespace {

// As much leaves a host or a rack as comes to it, so its slower direction decides.
double secondsPerByte(double models, const LinkRates& link) {
  const Rate slower{std::min(link.out.bitsPerSecond, link.in.bitsPerSecond)};
  return models * 8 / static_cast<double>(timing::payloadRate(slower).bitsPerSecond);
}

}  // namespace

double secondsPerModelByte(const NetworkOptions& network, const plan::Roles& roles) {
  const Topology& topology = network.topology;
  double most = 0;
  for (uint32_t host = 0; host < network.hosts; ++host) {
    most = std::max(most, secondsPerByte(bench::modelsOut(roles, host, 1),
                                         topology.ofHost(host, network.rate)));
  }
  for (uint32_t rack = 0; rack < topology.racksFor(network.hosts); ++rack) {
    const double models =
        bench::modelsOut(roles, rack * topology.hostsPerRack, topology.hostsPerRack);
    most = std::max(most, secondsPerByte(models, topology.ofRack(rack, network.rate)));
  }
  return most;
}

}  // namespace sluice::sim
