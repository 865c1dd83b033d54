#include <sluice/data/shard/sparse_centre.h>

#include <cstring>

#include <sluice/base/check.h>
#include <sluice/data/codec/sparse.h>

namespace sluice::shard {

SparseCentre::SparseCentre(const plan::Plan& plan, Rank self)
    : plan_(plan), served_(plan.slices().size()) {
  for (const SliceId id : plan.slicesOn(self)) {
    const plan::Slice& slice = plan.slice(id);
    served_[index(id)] = std::make_unique<Served>(
        Served{std::vector<float>(slice.count), Changes(plan.roles().workers.size(), slice.count)});
  }
}

void SparseCentre::setParameters(SliceId slice, std::span<const std::byte> parameters) {
  auto& home = served_[index(slice)]->home;
  SLUICE_CHECK(parameters.size() == home.size() * sizeof(float), parameters.size(), home.size());
  std::memcpy(home.data(), parameters.data(), parameters.size());
}

void SparseCentre::replaceParameters(SliceId slice, std::span<const std::byte> parameters) {
  setParameters(slice, parameters);
  served_[index(slice)]->changes.markAll();
}

Status SparseCentre::step(SliceId slice, std::span<const std::byte> part, double rate) {
  Served& here = *served_[index(slice)];
  // The part is decoded as a whole before the first element changes, so that a malformed one
  // leaves the parameters as they were.
  SLUICE_ASSIGN_OR_RETURN(const auto sent, codec::decodeSparse(part, plan_.slice(slice).count));
  codec::addScaledSparse(sent, static_cast<float>(-rate),
                         std::as_writable_bytes(std::span(here.home)));
  // Every worker has to hear of these elements, the sender too: it has changed its own copy,
  // and only the answer makes it equal to this one again.
  here.changes.mark(sent.places);
  return base::ok();
}

std::vector<std::byte> SparseCentre::newsFor(SliceId slice, Rank worker) {
  Served& here = *served_[index(slice)];
  return codec::encodeSparse(here.home, here.changes.take(plan_.roles().workerPosition(worker)));
}

}  // namespace sluice::shard
