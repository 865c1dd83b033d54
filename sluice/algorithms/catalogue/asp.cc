// ASP: each worker's gradient is applied as it arrives, and the answer goes to that worker only.
// Nobody waits for anybody; what a worker reads may be any number of others' steps old.
#include <sluice/algorithms/catalogue/algorithm.h>
#include <sluice/algorithms/catalogue/stale_training.h>
#include <sluice/data/shard/staleness.h>

namespace sluice::algorithms {
namespace {

Result<std::unique_ptr<Strategy>> makeAsp(const Context& context) {
  return makeStale(context, shard::kUnbounded, Pulls::kAlways);
}

}  // namespace

extern const Algorithm kAsp{
    .name = "asp",
    .help = "asynchronous: each gradient is applied as it comes, nobody waits",
    .choose = chooseStale,
    .make = makeAsp,
    .options = kStaleOptions,
    .accuracy = "1.0 points less with 8 workers, 7.8 with 16",
    .keepsRanksEqual = false,
    .checkpointHoldsModel = true};

}  // namespace sluice::algorithms
