// Ours, the default: p3's priorities, with every chunk spread over all servers and destinations
// rotated by rank. As published, all workers send to the same few servers at the same time, so most
// of the network waits; rotated, every server hears from somebody all the time.
#include <sluice/algorithms/catalogue/algorithm.h>
#include <sluice/algorithms/dgc/dgc_options.h>
#include <sluice/algorithms/dgc/summing_server.h>
#include <sluice/algorithms/outbox.h>
#include <sluice/algorithms/server/collecting.h>
#include <sluice/algorithms/server/server_options.h>
#include <sluice/algorithms/slices.h>
#include <sluice/base/options.h>

namespace sluice::algorithms {
namespace {

Status chooseSluice(const base::Config& config, plan::PlanSpec& spec) {
  if (config.isOn(option::kDgc)) return chooseSparseServer(config, spec);
  return chooseSharded(config, kShardedSlice, spec);
}

Result<std::unique_ptr<Strategy>> makeSluice(const Context& context) {
  if (isSparse(context.plan.spec())) return makeSparseServer(context);
  const size_t others = context.plan.roles().world - size_t{1};
  return makeCollecting(context, {.egress = byUrgencyOverAll(context.config, others)});
}

constexpr auto kSluiceOptions = joined(kShardedOptions, kDgcOptions);

}  // namespace

extern const Algorithm kSluice{.name = "sluice",
                               .help = "slices by priority, sharded and rotated (default)",
                               .choose = chooseSluice,
                               .make = makeSluice,
                               .alias = "bsp",
                               .options = kSluiceOptions};

}  // namespace sluice::algorithms
