#include <sluice/data/timing/link_model.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <set>

namespace sluice::timing {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Returns the end of the next forward pass, when the parameters of layer l are here at arrived[l].
double forwardEnd(std::span<const Layer> layers, std::span<const double> arrived) {
  double now = backwardSeconds(layers);
  for (size_t l = 0; l < layers.size(); ++l) now = std::max(now, arrived[l]) + layers[l].forward;
  return now;
}

}  // namespace

double simulatePreemptive(std::span<const Layer> layers, const WireCost& wire) {
  const auto ready = readyTimes(layers);
  std::vector<double> left;
  for (const Layer& layer : layers) left.push_back(wire.of(layer.bytes));
  std::vector<double> arrived(layers.size());
  std::set<size_t> waiting;
  size_t unready = layers.size();  // layers below this one have no gradient yet
  double now = 0;
  while (unready > 0 || !waiting.empty()) {
    const double nextReady = unready > 0 ? ready[unready - 1] : kNever;
    if (waiting.empty() || nextReady <= now) {
      now = std::max(now, nextReady);
      waiting.insert(--unready);
      continue;
    }
    // The most urgent gradient has the link until it is through or a new one is ready,
    // whichever comes first. In the latter case the link is given to whoever is most urgent
    // then, and nothing of the work is lost.
    const size_t urgent = *waiting.begin();
    const double end = now + left[urgent];
    if (end > nextReady) {
      left[urgent] -= nextReady - now;
      now = nextReady;
      continue;
    }
    now = arrived[urgent] = end;
    waiting.erase(urgent);
  }
  return forwardEnd(layers, arrived);
}

double simulateSliced(std::span<const Layer> layers, const WireCost& wire, const SlicedLink& link) {
  struct Sent {
    size_t layer;
    double end;
  };
  const auto ready = readyTimes(layers);
  std::vector<double> left;
  for (const Layer& layer : layers) left.push_back(layer.bytes);
  std::vector<double> arrived(layers.size());
  std::set<size_t> waiting;
  std::deque<Sent> withNetwork;
  size_t unready = layers.size();
  double now = 0;
  double linkFree = 0;
  while (unready > 0 || !waiting.empty() || !withNetwork.empty()) {
    // Slices are handed over while the network has room for them; from then on they cannot be
    // recalled. The link sends them in that order, each when it is free.
    while (withNetwork.size() < link.beyondRecall && !waiting.empty()) {
      // Without priority gradients go in the order in which they come: the last layer's is the
      // first, since backward begins there.
      const size_t layer = link.byPriority ? *waiting.begin() : *waiting.rbegin();
      const double bytes = std::min(left[layer], link.sliceBytes);
      left[layer] -= bytes;
      if (left[layer] <= 0) waiting.erase(layer);
      linkFree = std::max(linkFree, now) + wire.of(bytes);
      withNetwork.push_back({layer, linkFree});
    }
    const double nextReady = unready > 0 ? ready[unready - 1] : kNever;
    const double nextEnd = withNetwork.empty() ? kNever : withNetwork.front().end;
    now = std::min(nextReady, nextEnd);
    // Of two events at one moment the gradient comes first, so that it competes for the room
    // that the other one makes.
    if (nextReady <= nextEnd) {
      waiting.insert(--unready);
    } else {
      arrived[withNetwork.front().layer] = nextEnd;
      withNetwork.pop_front();
    }
  }
  return forwardEnd(layers, arrived);
}

}  // namespace sluice::timing
