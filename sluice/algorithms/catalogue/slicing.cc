// P3 without its priorities: small slices dealt to the servers in turn, first come first served,
// results sent back at once. Shows what slicing alone buys.
#include <sluice/algorithms/catalogue/algorithm.h>
#include <sluice/algorithms/server/collecting.h>
#include <sluice/algorithms/server/server_options.h>
#include <sluice/algorithms/slices.h>

namespace sluice::algorithms {
namespace {

Status chooseSlicing(const base::Config& config, plan::PlanSpec& spec) {
  chooseOverlap(config, spec);
  return chooseSlices(config, plan::Placement::kRoundRobin, kPublishedSlice, spec);
}

Result<std::unique_ptr<Strategy>> makeSlicing(const Context& context) {
  return makeCollecting(context, {.egress = {.order = queue::SendOrder::kFifo}});
}

}  // namespace

extern const Algorithm kSlicing{
    .name = "slicing",
    .help = "slices, fifo, results sent at once (p3 without priorities)",
    .choose = chooseSlicing,
    .make = makeSlicing,
    .options = kServerOptions,
    .sendsOldestFirst = true};

}  // namespace sluice::algorithms
