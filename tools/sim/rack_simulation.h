// A job of up to 16,384 hosts, with each rack as one host: the *aggregated* fidelity. Pieces of the
// real plan travel as wholes, so that a simulation costs a few events by rack and piece, where the
// hosts one by one would cost some for each message.
//
// All hosts of a rack send at the same time, each over its own line, and the rack's uplink carries
// the part for other racks. A *piece* is a row of neighbouring slices. Every rack pushes it; when
// the last rack has, the servers in all racks send the result; when the last of them has, the piece
// is there for every host. The most urgent piece is handed to the network first, as long as that
// has less than the credit for all destinations; after that, pieces stay in their order. The hosts'
// own work is charged by message and byte, as elsewhere.
//
// Left out: what differs among the hosts of a rack (only the slowest of them counts, and the server
// with most bytes), windows, queues and losses.
#pragma once

#include <span>

#include <sluice/data/plan/plan.h>
#include <sluice/data/timing/bounds.h>
#include <tools/sim/simulation.h>

namespace sluice::sim {

// The hosts that count as one where the network has no racks.
inline constexpr uint32_t kHostsTogether = 16;

// Simulates the plan, whose sizes are divided by `shrink`. Fills in all figures but the bound.
// Refuses options that need the hosts one by one.
Result<SimulationResult> simulateRacks(const SimulationOptions& options, const plan::Plan& plan,
                                       uint64_t shrink, std::span<const timing::Layer> layers);

}  // namespace sluice::sim
