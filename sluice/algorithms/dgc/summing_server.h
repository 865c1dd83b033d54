// Deep gradient compression over servers: workers send the few largest of what their gradients have
// accumulated (codec/dgc.h), and get back a few elements too.
//
//   bsp       the server sums the parts of all workers in rank order, and returns the sum;
//             workers update
//   asp, ssp  the server updates its parameters with each part, and returns those that have
//             changed since its last answer to that worker (stale_server.h)
#pragma once

#include <memory>

#include <sluice/algorithms/context.h>
#include <sluice/algorithms/dgc/settings.h>
#include <sluice/algorithms/strategy.h>

namespace sluice::algorithms {

// Takes the options that begin with dgc, and cuts into larger slices: of each only a thousandth
// travels.
Status chooseSparseServer(const base::Config& config, plan::PlanSpec& spec);

// bsp. All ranks have the same parameters, bit for bit. REQUIRES: isSparse(context.plan.spec()).
// Refuses updates other than SGD.
Result<std::unique_ptr<Strategy>> makeSparseServer(const Context& context);

}  // namespace sluice::algorithms
