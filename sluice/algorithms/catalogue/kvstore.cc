// The papers' baseline, MXNet's KVStore: whole layers, first come first served. A server tells
// every worker that its part of a layer is ready; a worker asks for the layer once the last of its
// parts is; the server then sends. Without overlap it is their PS-Sync. kvstore-parts asks for each
// part at its own notice.
#include <sluice/algorithms/catalogue/algorithm.h>
#include <sluice/algorithms/server/collecting.h>
#include <sluice/algorithms/server/server_options.h>
#include <sluice/algorithms/slices.h>

namespace sluice::algorithms {
namespace {

Status chooseKvstore(const base::Config& config, plan::PlanSpec& spec) {
  chooseWholeTensors(config, spec);
  chooseOverlap(config, spec);
  return base::ok();
}

Result<std::unique_ptr<Strategy>> makeNotifying(const Context& context, Answer answer) {
  return makeCollecting(context, {.answer = answer, .egress = {.order = queue::SendOrder::kFifo}});
}
Result<std::unique_ptr<Strategy>> makeKvstore(const Context& context) {
  return makeNotifying(context, Answer::kNotifyAndPull);
}
Result<std::unique_ptr<Strategy>> makeKvstoreParts(const Context& context) {
  return makeNotifying(context, Answer::kNotifyAndPullParts);
}

}  // namespace

extern const Algorithm kKvstore{
    .name = "kvstore",
    .help = "whole layers, fifo, notify and pull (the papers' baseline)",
    .choose = chooseKvstore,
    .make = makeKvstore,
    .options = kServerOptions,
    .sendsOldestFirst = true};

extern const Algorithm kKvstoreParts{
    .name = "kvstore-parts",
    .help = "as kvstore, but a part of a layer is pulled at its own notice",
    .choose = chooseKvstore,
    .make = makeKvstoreParts,
    .options = kServerOptions,
    .sendsOldestFirst = true};

}  // namespace sluice::algorithms
