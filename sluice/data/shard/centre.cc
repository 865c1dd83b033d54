#include <sluice/data/shard/centre.h>

#include <algorithm>
#include <cstring>

#include <sluice/base/check.h>
#include <sluice/data/kernel/mix.h>
#include <sluice/data/kernel/reduce.h>

namespace sluice::shard {

Centre::Centre(const plan::Plan& plan, Rank self, optimizer::OptimizerSpec update)
    : plan_(plan), update_(std::move(update)), served_(plan.slices().size()) {
  size_t largest = 0;
  for (const SliceId id : plan.slicesOn(self)) {
    const plan::Slice& slice = plan.slice(id);
    auto fresh = std::make_unique<Served>(
        Served{.home = std::vector<std::byte>(plan.bytesOf(slice)),
               .state = {update_.optimizer->name(), dtypeOf(id), slice.count},
               .desks = std::vector<std::unique_ptr<std::byte[]>>(plan.roles().workers.size())});
    // Every desk is made at the beginning, although a worker may come late: memory that runs
    // out is noticed before training, and no part waits for an allocation.
    for (auto& desk : fresh->desks) desk = std::make_unique<std::byte[]>(plan.bytesOf(slice));
    largest = std::max(largest, slice.count * sizeOf(kernel::accumulatorOf(dtypeOf(id))));
    served_[index(id)] = std::move(fresh);
  }
  accumulator_.resize(largest);
}

void Centre::setParameters(SliceId slice, std::span<const std::byte> parameters) {
  auto& home = served_[index(slice)]->home;
  SLUICE_CHECK(parameters.size() == home.size(), parameters.size(), home.size());
  std::memcpy(home.data(), parameters.data(), home.size());
}

std::span<std::byte> Centre::desk(SliceId slice, Rank worker) const {
  const Served& here = *served_[index(slice)];
  return {here.desks[plan_.roles().workerPosition(worker)].get(), here.home.size()};
}

void Centre::step(SliceId slice, Rank worker, std::span<const double> values) {
  Served& here = *served_[index(slice)];
  const DType dtype = dtypeOf(slice);
  const auto gradient =
      std::span(accumulator_).first(here.state.elements() * sizeOf(kernel::accumulatorOf(dtype)));
  // The part lies on its worker's desk in the type in which it came, but a step takes gradients
  // unrounded. One scratch buffer serves all slices, since steps are made one after another.
  kernel::widen(dtype, gradient, desk(slice, worker));
  const Status applied =
      optimizer::applyStep(*update_.optimizer, here.state, here.home, gradient, values);
  SLUICE_CHECK(applied.isOk(), applied.toString());
}

void Centre::drawTogether(SliceId slice, Rank worker, double alpha) {
  // The desk changes too: it then holds what goes back to the worker.
  kernel::drawTogether(dtypeOf(slice), served_[index(slice)]->home, desk(slice, worker), alpha);
}

void Centre::copyToDesk(SliceId slice, Rank worker) {
  const auto& home = served_[index(slice)]->home;
  std::memcpy(desk(slice, worker).data(), home.data(), home.size());
}

}  // namespace sluice::shard
