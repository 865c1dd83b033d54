// Pipe-SGD: one reduction of the whole gradient per step, as allreduce's, but nobody waits for it:
// a step applies the mean gradient of K-1 steps before. In the papers' words w[t] = w[t-1] - lr *
// g[t-K], where g[t] is made with w[t]; before the first one there is nothing to apply.
#include <array>

#include <fmt/format.h>

#include <sluice/algorithms/catalogue/algorithm.h>
#include <sluice/algorithms/reduction/reduction.h>
#include <sluice/algorithms/reduction/reduction_options.h>
#include <sluice/base/options.h>

namespace sluice::algorithms {
namespace {

constexpr base::Option kPipeDepth = base::sameOnAllRanks(
    {"pipe-depth", base::Kind::kInteger, "2",
     "pipe: K; a step applies the mean gradient of K-1 steps before, 1 is synchronous"});
constexpr base::Option kPipeWarmUp =
    base::sameOnAllRanks({"pipe-warm-up", base::Kind::kInteger, "0",
                          "pipe: so many steps at the beginning are synchronous"});

constexpr int64_t kMostDepth = 100;  // each costs a copy of the model

Status choosePipe(const base::Config& config, plan::PlanSpec& spec) {
  const int64_t depth = config.integer(kPipeDepth);
  const int64_t warmUp = config.integer(kPipeWarmUp);
  if (depth < 1 || depth > kMostDepth || warmUp < 0) {
    return {Code::kInvalidArgument,
            fmt::format("--pipe-depth must be 1 to {}, and --pipe-warm-up at least 0", kMostDepth)};
  }
  const timing::Group everything{0, spec.model.tensors.size() - 1};
  SLUICE_RETURN_IF_ERROR(chooseReduction(config, std::span(&everything, 1), spec));
  setDelay(spec, static_cast<size_t>(depth - 1), static_cast<uint64_t>(warmUp));
  return base::ok();
}

constexpr auto kPipeOptions = joined(std::array{&kPipeDepth, &kPipeWarmUp}, kReductionOptions);

}  // namespace

extern const Algorithm kPipe{
    .name = "pipe",
    .help = "one all-reduce of everything, applied K-1 steps later (Pipe-SGD)",
    .choose = choosePipe,
    .make = makeReduction,
    .options = kPipeOptions,
    .argument = &kPipeDepth,
    .accuracy = "0.1 points less with 4 workers",
    .takesProcessGroup = true,
    .delaysResults = true,
    .sendsOldestFirst = true};

}  // namespace sluice::algorithms
