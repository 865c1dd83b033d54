#include <sluice/data/timing/bounds.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace sluice::timing {
namespace {

// Sums from the back: what is left from each layer on.
std::vector<double> suffixSums(std::span<const Layer> layers, double Layer::* field) {
  std::vector<double> sums(layers.size());
  double sum = 0;
  for (size_t j = layers.size(); j-- > 0;) sums[j] = sum += layers[j].*field;
  return sums;
}

double total(std::span<const Layer> layers, double Layer::* field) {
  return std::accumulate(layers.begin(), layers.end(), 0.0,
                         [&](double sum, const Layer& layer) { return sum + layer.*field; });
}

double bitsPerSecond(Rate rate) {
  return static_cast<double>(rate.bitsPerSecond);
}

}  // namespace

std::vector<Layer> layersOf(const Profile& profile, double computeSeconds, DType dtype) {
  std::vector<Layer> layers;
  layers.reserve(profile.tensors.size());
  for (const ProfileTensor& tensor : profile.tensors) {
    layers.push_back({tensor.forward * computeSeconds, tensor.backward * computeSeconds,
                      static_cast<double>(tensor.parameters * sizeOf(dtype))});
  }
  return layers;
}

double forwardSeconds(std::span<const Layer> layers) {
  return total(layers, &Layer::forward);
}
double backwardSeconds(std::span<const Layer> layers) {
  return total(layers, &Layer::backward);
}
std::vector<double> readyTimes(std::span<const Layer> layers) {
  return suffixSums(layers, &Layer::backward);
}
std::vector<double> tails(std::span<const Layer> layers) {
  return suffixSums(layers, &Layer::forward);
}

double p3Bound(std::span<const Layer> layers, const WireCost& wire, double headStart) {
  const auto ready = readyTimes(layers);
  const auto tail = tails(layers);
  double bound = backwardSeconds(layers) + forwardSeconds(layers);
  double onWire = -headStart;
  // Before layer j can begin its forward, all layers up to it must have crossed the wire, and
  // none of them before its gradient was ready. The latest of these times, over all layers,
  // bounds the iteration.
  for (size_t j = 0; j < layers.size(); ++j) {
    onWire += wire.of(layers[j].bytes);
    bound = std::max(bound, ready[j] + std::max(onWire, 0.0) + tail[j]);
  }
  return bound;
}

double wfbpBound(std::span<const Layer> layers, const WireCost& wire) {
  const auto ready = readyTimes(layers);
  double end = backwardSeconds(layers);
  double onWire = 0;
  // Gradients cross in the order of backward, so after layer j's own only those of layers 0 to
  // j are left to send, one after another.
  for (size_t j = 0; j < layers.size(); ++j) {
    onWire += wire.of(layers[j].bytes);
    end = std::max(end, ready[j] + onWire);
  }
  return forwardSeconds(layers) + end;
}

double pipeBound(std::span<const Layer> layers, const WireCost& wire, double updateSeconds) {
  // Steps overlap, so computing and sending go on side by side, and the longer of the two
  // decides.
  return std::max(backwardSeconds(layers) + forwardSeconds(layers) + updateSeconds,
                  wire.of(total(layers, &Layer::bytes)));
}

Rate payloadRate(Rate link) {
  constexpr double kMtu = 1500;
  constexpr double kEthernetHeader = 14;
  constexpr double kIpAndTcpHeaders = 52;  // with TCP's time stamps
  constexpr double kShare = (kMtu - kIpAndTcpHeaders) / (kMtu + kEthernetHeader);
  return {static_cast<uint64_t>(std::llround(bitsPerSecond(link) * kShare))};
}

double shardedWireSeconds(uint32_t ranks, double bytes, Rate rate) {
  return shardedWire(ranks, rate).of(bytes);
}

WireCost shardedWire(uint32_t ranks, Rate rate) {
  // Each rank sends a share of (N-1)/N to servers and receives as much from them, once with
  // gradients and once with results.
  return {.start = 0, .perByte = 2.0 * (ranks - 1) / ranks * 8 / bitsPerSecond(rate)};
}

WireCost binaryTree(uint32_t ranks, const Link& link) {
  const double rounds = std::log2(ranks);
  return {2 * link.alpha * rounds, (2 * link.beta + link.gamma) * rounds};
}
WireCost recursiveDoubling(uint32_t ranks, const Link& link) {
  const double rounds = std::log2(ranks);
  return {link.alpha * rounds, (link.beta + link.gamma) * rounds};
}
WireCost halvingDoubling(uint32_t ranks, const Link& link) {
  return {2 * link.alpha * std::log2(ranks),
          2 * link.beta - (2 * link.beta + link.gamma) / ranks + link.gamma};
}
WireCost ring(uint32_t ranks, const Link& link) {
  const double others = ranks - 1.0;
  return {2 * others * link.alpha, 2 * others / ranks * link.beta + others / ranks * link.gamma};
}

}  // namespace sluice::timing
