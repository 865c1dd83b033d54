#include <tools/sim/cluster_bound.h>

#include <algorithm>

#include <sluice/data/timing/bounds.h>
#include <tools/bench/figures.h>

namespace sluice::sim {
namespace {

// As much leaves a host or a rack as comes to it, so its slower direction decides.
Rate slowerOf(const LinkRates& link) {
  return {std::min(link.out.bitsPerSecond, link.in.bitsPerSecond)};
}

double secondsPerByte(double models, Rate rate) {
  return models * 8 / static_cast<double>(timing::payloadRate(rate).bitsPerSecond);
}

}  // namespace

BusiestLine busiestLine(const NetworkOptions& network, const plan::Roles& roles) {
  const Topology& topology = network.topology;
  BusiestLine busiest;
  const auto compare = [&](double models, bool isUplink, uint32_t number, const LinkRates& link) {
    const Rate rate = slowerOf(link);
    const double seconds = secondsPerByte(models, rate);
    if (seconds > busiest.secondsPerModelByte) busiest = {seconds, isUplink, number, rate};
  };
  for (uint32_t host = 0; host < network.hosts; ++host)
    compare(bench::modelsOut(roles, host, 1), false, host, topology.ofHost(host, network.rate));
  for (uint32_t rack = 0; rack < topology.racksFor(network.hosts); ++rack) {
    compare(bench::modelsOut(roles, rack * topology.hostsPerRack, topology.hostsPerRack), true,
            rack, topology.ofRack(rack, network.rate));
  }
  return busiest;
}

}  // namespace sluice::sim
