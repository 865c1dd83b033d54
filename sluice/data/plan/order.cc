#include <sluice/data/plan/order.h>

#include <algorithm>

namespace sluice::plan {
namespace {

uint32_t ordinalInTensor(const Plan& plan, const Slice& slice) {
  return index(slice.id) - index(plan.slicesOf(slice.tensor).front().id);
}

bool isRotated(const Plan& plan) {
  const Placement placement = plan.spec().slicing.placement;
  return placement == Placement::kSharded || placement == Placement::kLayers;
}

}  // namespace

uint32_t visit(uint32_t from, uint32_t to, uint32_t count, uint32_t hostsPerRack) {
  // Distances are visited by their remainder first: a remainder of 0 is the host at the same
  // place of each rack, so the sender strides over the racks instead of filling one uplink
  // after the other.
  const uint32_t distance = (to + count - from % count) % count;
  const uint32_t inRack = distance % hostsPerRack;
  // Among `count` distances each remainder r occurs count/hostsPerRack times, the first few r once
  // more.
  const uint32_t before = inRack * (count / hostsPerRack) + std::min(inRack, count % hostsPerRack);
  return before + distance / hostsPerRack;
}

uint64_t pushTurn(const Plan& plan, const Slice& slice, Rank worker) {
  if (!isRotated(plan)) return ordinalInTensor(plan, slice);
  const Roles& roles = plan.roles();
  const auto servers = static_cast<uint32_t>(roles.servers.size());
  // Every worker begins with the server at its own place, or all would send to one server at a
  // time. The chunk comes first in the number: all servers get their slices of a chunk before
  // the next one begins.
  return uint64_t{slice.chunk} * servers + visit(roles.workerPosition(worker),
                                                 roles.serverPosition(slice.server), servers,
                                                 plan.spec().slicing.hostsPerRack);
}

uint64_t publishTurn(const Plan& plan, const Slice& slice, Rank worker) {
  const Roles& roles = plan.roles();
  const auto workers = static_cast<uint32_t>(roles.workers.size());
  const uint32_t position = roles.workerPosition(worker);
  if (!isRotated(plan)) return uint64_t{ordinalInTensor(plan, slice)} * workers + position;
  return uint64_t{slice.chunk} * workers + visit(roles.serverPosition(slice.server), position,
                                                 workers, plan.spec().slicing.hostsPerRack);
}

}  // namespace sluice::plan
