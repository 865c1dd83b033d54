// Priority-based parameter propagation as published: slices dealt to the servers in turn, the layer
// that the next forward pass needs first goes first, and results are sent back at once. One window
// over all destinations bounds what is with the network, in the place of the published thread that
// waits until a message has been sent. P3Server also takes arrived parts by priority; here a part is
// taken in as it arrives, and only updates that take time wait by priority (server/update_line.h).
#include <sluice/algorithms/catalogue/algorithm.h>
#include <sluice/algorithms/server/collecting.h>
#include <sluice/algorithms/server/server_options.h>
#include <sluice/algorithms/slices.h>

namespace sluice::algorithms {
namespace {

// The window in slices. Fewer leave the link idle between them; more make urgent slices wait.
constexpr uint64_t kWindowSlices = 4;

Status chooseP3(const base::Config& config, plan::PlanSpec& spec) {
  chooseOverlap(config, spec);
  return chooseSlices(config, plan::Placement::kRoundRobin, kPublishedSlice, spec);
}

Result<std::unique_ptr<Strategy>> makeP3(const Context& context) {
  const uint64_t sliceBytes = context.plan.spec().slicing.sliceElements * sizeof(float);
  return makeCollecting(context, {.egress = {.order = queue::SendOrder::kPriority,
                                             .totalWindow = kWindowSlices * sliceBytes}});
}

}  // namespace

extern const Algorithm kP3{.name = "p3",
                           .help = "slices by priority, one window for all (as published)",
                           .choose = chooseP3,
                           .make = makeP3,
                           .options = kServerOptions};

}  // namespace sluice::algorithms
