#include <sluice/session/coming_gradients.h>

#include <utility>

#include <fmt/format.h>

#include <sluice/base/check.h>

namespace sluice::session {

void ComingGradients::announce(TensorId tensor, Step step, TimePoint at) {
  // Most sessions have no device, so nothing is kept until the first announcement.
  if (tensors_.empty()) tensors_.resize(plan_.model().tensors.size());
  OneTensor& here = tensors_[index(tensor)];
  SLUICE_CHECK(here.missing == 0, tensor, step);
  here.step = step;
  here.announced = at;
  here.missing = plan_.slicesOf(tensor).size();
  here.isHere.assign(here.missing, false);
  ++incomplete_;
}

algorithms::SliceContribution ComingGradients::come(TensorId tensor, size_t place) {
  SLUICE_CHECK(isComing(tensor), tensor, place);
  OneTensor& here = tensors_[index(tensor)];
  SLUICE_CHECK(place < here.isHere.size() && !here.isHere[place], tensor, place);
  here.isHere[place] = true;
  if (--here.missing == 0) --incomplete_;
  const auto slices = plan_.slicesOf(tensor);
  return {.tensor = tensor,
          .slice = slices[place].id,
          .step = here.step,
          .come = slices.size() - here.missing,
          .slices = slices.size()};
}

void ComingGradients::whenComplete(std::function<void()> then) {
  if (incomplete_ == 0) return then();
  waiting_.push_back(std::move(then));
}

std::vector<std::function<void()>> ComingGradients::takeWaiting() {
  if (incomplete_ > 0) return {};
  return std::exchange(waiting_, {});
}

void ComingGradients::clear() {
  for (OneTensor& tensor : tensors_) tensor.missing = 0;
  incomplete_ = 0;
  waiting_.clear();
}

std::string ComingGradients::describe(TensorId tensor) const {
  if (!isComing(tensor)) return {};
  return fmt::format("{} of {} slices not yet copied from the device", missing(tensor),
                     plan_.slicesOf(tensor).size());
}

}  // namespace sluice::session
