// The papers' baseline, MXNet's KVStore: whole layers, first come first served, and a result
// travels only after the server has told everybody and everybody has asked for it. Without overlap
// it is their PS-Sync.
#include <array>

#include <sluice/base/options.h>
#include <sluice/strategy/algorithms/algorithm.h>
#include <sluice/strategy/server/collecting.h>

namespace sluice::strategy {
namespace {

constexpr const char* kOverlap = "overlap";

Status chooseKvstore(const base::Config& config, plan::PlanSpec& spec) {
  spec.slicing.placement = plan::Placement::kKvstore;
  if (config.isOn(option::kNoOverlap)) spec.settings[kOverlap] = "no";
  return base::ok();
}

Result<std::unique_ptr<Strategy>> makeKvstore(const Context& context) {
  return makeCollecting(context, {.answer = Answer::kNotifyAndPull,
                                  .egress = {.order = queue::Order::kFifo},
                                  .overlaps = !context.plan.spec().settings.contains(kOverlap)});
}

constexpr std::array kKvstoreOptions{&option::kNoOverlap};

}  // namespace

extern const Algorithm kKvstore{
    .name = "kvstore",
    .help = "whole layers, fifo, notify and pull (the papers' baseline)",
    .choose = chooseKvstore,
    .make = makeKvstore,
    .options = kKvstoreOptions,
    .sendsOldestFirst = true};

}  // namespace sluice::strategy
