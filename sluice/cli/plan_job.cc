#include <sluice/cli/plan_flags.h>
namespace sluice::cli {
Result<int> planAsJob(PlanFlags, const base::Config&) {
  return Status(Code::kInvalidArgument,
                "give the network: --rate 1gbit for equal links, or --network NET.json");
}
}  // namespace sluice::cli
