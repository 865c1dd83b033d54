#include <sluice/data/timing/merging.h>

#include <algorithm>
#include <limits>
#include <optional>

namespace sluice::timing {
namespace {

constexpr double kOutOfReach = std::numeric_limits<double>::infinity();

// sums[j] = bytes of the layers before j.
std::vector<double> bytesBefore(std::span<const Layer> layers) {
  std::vector<double> sums(layers.size() + 1);
  for (size_t j = 0; j < layers.size(); ++j) sums[j + 1] = sums[j] + layers[j].bytes;
  return sums;
}

// Returns the groups that end where `endsAfter` says so.
template <typename EndsAfter>
std::vector<Group> groupsWhere(size_t layers, EndsAfter endsAfter) {
  std::vector<Group> groups;
  size_t first = 0;
  for (size_t l = 0; l < layers; ++l) {
    if (l + 1 < layers && !endsAfter(l)) continue;
    groups.push_back({first, l});
    first = l + 1;
  }
  return groups;
}

// prioritySeconds and fewestGroups must round alike, or the search could not end on a value it has
// seen.
double groupBound(const WireCost& wire, double readyPlusTail, double messages, double bytes) {
  return readyPlusTail + (wire.start * messages + wire.perByte * bytes);
}

std::vector<double> readyPlusTail(std::span<const Layer> layers) {
  auto sums = readyTimes(layers);
  const auto tail = tails(layers);
  std::ranges::transform(sums, tail, sums.begin(), std::plus<>());
  return sums;
}

// Returns the fewest groups with which every group keeps within `limit`. Fewer groups before a
// group only help it, so the fewest for each prefix of the layers is all that counts.
std::optional<std::vector<Group>> fewestGroups(std::span<const double> sums,
                                               std::span<const double> before, const WireCost& wire,
                                               double limit) {
  const size_t n = sums.size();
  std::vector<double> fewest(n + 1, kOutOfReach);  // for the layers before j
  std::vector<size_t> firstOfLast(n + 1);
  fewest[0] = 0;
  for (size_t end = 1; end <= n; ++end) {
    for (size_t first = 0; first < end; ++first) {
      const double groups = fewest[first] + 1;
      if (groups < fewest[end] && groupBound(wire, sums[first], groups, before[end]) <= limit) {
        fewest[end] = groups;
        firstOfLast[end] = first;
      }
    }
  }
  if (fewest[n] == kOutOfReach) return std::nullopt;
  std::vector<Group> groups;
  for (size_t end = n; end > 0; end = firstOfLast[end])
    groups.push_back({firstOfLast[end], end - 1});
  std::ranges::reverse(groups);
  return groups;
}

}  // namespace

double iterationSeconds(std::span<const Layer> layers, const WireCost& wire,
                        std::span<const Group> groups) {
  const auto ready = readyTimes(layers);
  const auto before = bytesBefore(layers);
  double end = 0;
  // Groups are sent from the last to the first, as backward makes them, over one link.
  for (size_t g = groups.size(); g-- > 0;) {
    const auto [first, last] = groups[g];
    end = std::max(end, ready[first]) + wire.of(before[last + 1] - before[first]);
  }
  return forwardSeconds(layers) + end;
}

double prioritySeconds(std::span<const Layer> layers, const WireCost& wire,
                       std::span<const Group> groups) {
  const auto sums = readyPlusTail(layers);
  const auto before = bytesBefore(layers);
  double bound = backwardSeconds(layers) + forwardSeconds(layers);
  for (size_t g = 0; g < groups.size(); ++g) {
    const auto messages = static_cast<double>(g + 1);
    bound = std::max(bound,
                     groupBound(wire, sums[groups[g].first], messages, before[groups[g].last + 1]));
  }
  return bound;
}

Merging mergeExactly(std::span<const Layer> layers, const WireCost& wire) {
  const size_t n = layers.size();
  const auto ready = readyTimes(layers);
  const auto before = bytesBefore(layers);
  std::vector<double> end(n + 1, kOutOfReach);  // when the layers from j on can all have been sent
  std::vector<size_t> next(n);  // first layer of the group after the one that starts at j
  end[n] = 0;
  // From the last layer to the first, as backward goes: when the group that starts at j is
  // chosen, end[k] is known for every place k where the next one may start.
  for (size_t j = n; j-- > 0;) {
    for (size_t k = j + 1; k <= n; ++k) {
      const double candidate = std::max(end[k], ready[j]) + wire.of(before[k] - before[j]);
      if (candidate < end[j]) {
        end[j] = candidate;
        next[j] = k;
      }
    }
  }
  Merging merging{{}, forwardSeconds(layers) + end[0]};
  for (size_t j = 0; j < n; j = next[j]) merging.groups.push_back({j, next[j] - 1});
  return merging;
}

// Names as in the paper: layers from 1, tb and tc durations, taub and tauc start times. taub[0] is
// the end of backward. From the last layer down, l is merged into l-1 if l-1 will be ready less
// than one start-up cost after l's message could have started.
Merging mergeByAlgorithm1(std::span<const Layer> layers, const WireCost& wire) {
  const size_t n = layers.size();
  std::vector<double> tb(n + 1);
  std::vector<double> tc(n + 1);
  std::vector<double> p(n + 1);
  for (size_t l = 1; l <= n; ++l) {
    tb[l] = layers[l - 1].backward;
    p[l] = layers[l - 1].bytes;
    tc[l] = wire.of(p[l]);
  }
  std::vector<double> taub(n + 1);
  for (size_t l = n; l-- > 0;) taub[l] = taub[l + 1] + tb[l + 1];
  std::vector<double> tauc(n + 1);
  const auto calculateCommStart = [&] {
    tauc[n] = taub[n] + tb[n];
    for (size_t l = n - 1; l >= 1; --l)
      tauc[l] = std::max(tauc[l + 1] + tc[l + 1], taub[l] + tb[l]);
  };
  calculateCommStart();
  std::vector<bool> isMerged(n + 1);
  for (size_t l = n; l >= 2; --l) {
    if (taub[l - 2] - tauc[l] >= wire.start) continue;
    tc[l] = 0;
    p[l - 1] += p[l];
    tc[l - 1] = wire.of(p[l - 1]);
    isMerged[l] = true;
    calculateCommStart();
  }
  Merging merging{groupsWhere(n, [&](size_t l) { return !isMerged[l + 2]; }), 0};
  merging.seconds = iterationSeconds(layers, wire, merging.groups);
  return merging;
}

Merging mergeWithPriority(std::span<const Layer> layers, const WireCost& wire) {
  const auto sums = readyPlusTail(layers);
  const auto before = bytesBefore(layers);
  Merging best{groupsWhere(layers.size(), [](size_t) { return true; }), 0};
  best.seconds = prioritySeconds(layers, wire, best.groups);
  double impossible = 0;
  // Each success lowers `best` to a time that a real grouping reaches, so the bisection ends well
  // above double precision.
  while (best.seconds - impossible > 1e-13 * best.seconds) {
    const double middle = impossible + (best.seconds - impossible) / 2;
    auto groups = fewestGroups(sums, before, wire, middle);
    const double reached = groups ? prioritySeconds(layers, wire, *groups) : kOutOfReach;
    if (reached < best.seconds) best = {*std::move(groups), reached};
    if (reached > middle) impossible = middle;
  }
  return best;
}

}  // namespace sluice::timing
