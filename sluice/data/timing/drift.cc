#include <sluice/data/timing/drift.h>

#include <algorithm>
#include <utility>

#include <sluice/base/check.h>
#include <sluice/base/median.h>
#include <sluice/data/timing/line_fit.h>

namespace sluice::timing {
namespace {

std::vector<Layer> correctLayers(std::span<const Layer> known, std::span<const double> measured) {
  SLUICE_CHECK(known.size() == measured.size(), known.size(), measured.size());
  // Messages go in the order of layers, so a layer is of no use before the layers behind it.
  std::vector<double> ready(measured.begin(), measured.end());
  double knownSeconds = 0;
  for (size_t l = ready.size() - 1; l-- > 0;) {
    ready[l] = std::max(ready[l], ready[l + 1]);
    knownSeconds += known[l].backward;
  }
  std::vector<Layer> layers(known.begin(), known.end());
  const double measuredSeconds = ready.front() - ready.back();
  if (measuredSeconds <= 0 || knownSeconds <= 0) return layers;
  // The forward pass and the backward of the last layer cannot be seen; they are taken to have
  // changed as the visible part has.
  const double stretch = measuredSeconds / knownSeconds;
  for (size_t l = 0; l < layers.size(); ++l) {
    layers[l].forward *= stretch;
    layers[l].backward =
        l + 1 < layers.size() ? ready[l] - ready[l + 1] : layers[l].backward * stretch;
  }
  return layers;
}

WireCost correctWire(const Costs& known, std::span<const double> reduced,
                     std::span<const Group> groups) {
  SLUICE_CHECK(reduced.size() == groups.size(), reduced.size(), groups.size());
  constexpr double kApart = 4;
  constexpr double kLeastSeconds = 1e-9;
  std::vector<TimedMessage> messages;
  std::vector<double> stretches;
  for (size_t g = 0; g < groups.size(); ++g) {
    if (reduced[g] <= 0) continue;
    double bytes = 0;
    for (size_t l = groups[g].first; l <= groups[g].last; ++l) bytes += known.layers[l].bytes;
    messages.push_back({bytes, reduced[g]});
    stretches.push_back(reduced[g] / std::max(known.wire.of(bytes), kLeastSeconds));
  }
  if (messages.empty()) return known.wire;
  const auto [least, most] = std::ranges::minmax(messages, {}, &TimedMessage::bytes);
  // A line through messages of nearly one size would follow their noise, so the sizes must lie
  // well apart for a fit.
  if (most.bytes > kApart * least.bytes) {
    const WireCost line = fitLine(messages);
    // Noise can give a line that begins below zero, as no network does.
    if (line.start >= 0 && line.perByte >= 0) return line;
  }
  // These messages cannot tell start from bytes, so both are taken to have changed alike.
  const double stretch = base::median(std::move(stretches));
  return {.start = known.wire.start * stretch, .perByte = known.wire.perByte * stretch};
}

}  // namespace

StepTimes combine(std::span<const StepTimes> ofRanks) {
  SLUICE_CHECK(!ofRanks.empty());
  StepTimes all = ofRanks.front();
  for (const StepTimes& one : ofRanks.subspan(1)) {
    // A reduction waits for the slowest rank's gradient, so the latest time counts. How long it
    // took is seen best by the rank that joined it last, since the others also waited.
    for (size_t l = 0; l < all.ready.size(); ++l)
      all.ready[l] = std::max(all.ready[l], one.ready[l]);
    for (size_t g = 0; g < all.reduced.size(); ++g)
      all.reduced[g] = std::min(all.reduced[g], one.reduced[g]);
  }
  return all;
}

Costs correct(const Costs& known, const StepTimes& measured, std::span<const Group> groups) {
  return {.layers = correctLayers(known.layers, measured.ready),
          .wire = correctWire(known, measured.reduced, groups)};
}

}  // namespace sluice::timing
