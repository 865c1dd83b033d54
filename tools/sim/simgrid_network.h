// A network model of others for the same simulations: the flow model of SimGrid, as a second
// opinion on segment_network.h. SimGrid shares the lines among the streams that send (max-min), and
// knows no windows, queues or losses.
//
// SimGrid is not linked: it brings 25 libraries, which would take 70 ms at every start of the
// program. simgrid_module.cc is a library of its own, which lies beside the program if SimGrid was
// there when sluice was built.
#pragma once

#include <memory>

#include <sluice/base/status.h>
#include <tools/sim/event_queue.h>
#include <tools/sim/network.h>
#include <tools/sim/segment_network.h>

namespace sluice::sim {

// REQUIRES: `events` outlives the network, and no other network of SimGrid is there.
Result<std::unique_ptr<Network>> makeSimgridNetwork(EventQueue& events,
                                                    const NetworkOptions& options);

}  // namespace sluice::sim
