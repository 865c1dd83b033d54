#include <sluice/data/codec/dgc.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include <sluice/base/check.h>
#include <sluice/data/codec/sparse.h>

namespace sluice::codec {
namespace {

constexpr size_t kSmallestSample = 1000;
constexpr size_t kSampleShare = 100;  // the sample is one element in this many

// NaN counts as the largest magnitude, so that it is sent and seen.
float magnitude(float value) {
  return std::isnan(value) ? std::numeric_limits<float>::infinity() : std::abs(value);
}

// Returns the count-th largest value. REQUIRES: 0 < count <= values.size()
float nthLargest(std::span<float> values, size_t count) {
  const auto nth = values.begin() + static_cast<ptrdiff_t>(count) - 1;
  std::nth_element(values.begin(), nth, values.end(), std::greater<>());
  return *nth;
}

}  // namespace

float clipFactor(std::span<const float> gradient, double most) {
  if (most == 0) return 1;
  // The sum is a double: in a float the squares of millions of elements would swallow the small
  // ones.
  double squares = 0;
  for (const float g : gradient) squares += static_cast<double>(g) * static_cast<double>(g);
  const double norm = std::sqrt(squares);
  return norm > most ? static_cast<float>(most / norm) : 1;
}

double clipOfEach(double limit, size_t workersPerStep) {
  return limit * std::sqrt(static_cast<double>(workersPerStep));
}

Dgc::Dgc(size_t elements, const DgcOptions& options)
    : options_(options), velocity_(elements), residual_(elements) {}

std::vector<std::byte> Dgc::compress(std::span<const float> gradient, double sparsity,
                                     float scale) {
  SLUICE_CHECK(gradient.size() == residual_.size(), gradient.size(), residual_.size());
  SLUICE_CHECK(sparsity >= 0 && sparsity <= 1, sparsity);
  const auto momentum = static_cast<float>(options_.momentum);
  // Momentum comes before the choice of elements, as the paper's momentum correction wants: an
  // element that is held back gathers the velocity that it would have had if it had been sent
  // in each step.
  for (size_t i = 0; i < gradient.size(); ++i) {
    const float clipped = scale == 1 ? gradient[i] : gradient[i] * scale;
    const float kept = momentum * velocity_[i];
    velocity_[i] = kept + clipped;
    residual_[i] += velocity_[i];
  }
  const std::vector<uint32_t> places = placesToSend(sparsity);
  auto message = encodeSparse(residual_, places);
  for (const uint32_t place : places) {
    // A masked velocity begins again from zero: it has grown for as long as the element was
    // held back, and would drive it on in the direction of gradients that are old by now.
    residual_[place] = 0;
    if (options_.masksMomentum && !options_.isDense) velocity_[place] = 0;
  }
  if (!options_.keepsRest) std::ranges::fill(residual_, 0.0F);
  return message;
}

std::vector<uint32_t> Dgc::placesToSend(double sparsity) {
  if (options_.isDense) return everyPlace();
  const auto wanted =
      static_cast<size_t>(std::ceil((1 - sparsity) * static_cast<double>(residual_.size())));
  auto places = largest(std::max<size_t>(wanted, 1));
  // If the message will hold all elements anyway, all of them are sent: leaving some back would
  // save no byte.
  return isSentDense(residual_.size(), places) ? everyPlace() : places;
}

std::vector<uint32_t> Dgc::everyPlace() const {
  std::vector<uint32_t> places(residual_.size());
  std::iota(places.begin(), places.end(), 0U);
  return places;
}

// Returns the places of at most `count` elements, in ascending order: those that reach some
// threshold, so that no element that is left out is larger than one that is sent.
std::vector<uint32_t> Dgc::largest(size_t count) {
  const size_t elements = residual_.size();
  if (count >= elements) return everyPlace();
  std::vector<uint32_t> places;
  // The threshold comes from a sample, since sorting a whole gradient would take longer than
  // sending it. The guess may let too many or too few through; both are put right below, and
  // never more than `count` are sent.
  const size_t sample = std::min(elements, std::max(kSmallestSample, elements / kSampleShare));
  const size_t stride = elements / sample;
  magnitudes_.clear();
  for (size_t i = 0; i < elements; i += stride) magnitudes_.push_back(magnitude(residual_[i]));
  const size_t inSample =
      std::clamp<size_t>(count * magnitudes_.size() / elements, 1, magnitudes_.size());
  float threshold = nthLargest(magnitudes_, inSample);
  const auto above = [&] {
    places.clear();
    for (size_t i = 0; i < elements; ++i) {
      if (magnitude(residual_[i]) >= threshold) places.push_back(static_cast<uint32_t>(i));
    }
  };
  above();
  // The sample's largest values may be rare: lower the threshold until enough elements reach it.
  constexpr int kTries = 8;
  for (int i = 0; i < kTries && places.size() < (count + 1) / 2; ++i) {
    threshold /= 2;
    above();
  }
  if (places.size() > count) {
    magnitudes_.clear();
    for (const uint32_t place : places) magnitudes_.push_back(magnitude(residual_[place]));
    threshold = nthLargest(magnitudes_, count);
    // Among the elements that equal the threshold, the first ones are kept, as many as there is
    // room for.
    size_t room = count - static_cast<size_t>(std::ranges::count_if(
                              magnitudes_, [&](float each) { return each > threshold; }));
    std::erase_if(places, [&](uint32_t place) {
      const float here = magnitude(residual_[place]);
      if (here > threshold) return false;
      if (here < threshold || room == 0) return true;
      --room;
      return false;
    });
  }
  return places;
}

Status Dgc::restore(std::span<const float> residual, std::span<const float> velocity) {
  if (residual.size() != residual_.size() || velocity.size() != velocity_.size()) {
    return {Code::kInvalidArgument,
            fmt::format(
                "the checkpoint has {} elements for a tensor of {}; use a checkpoint of this model",
                residual.size(), residual_.size())};
  }
  std::ranges::copy(residual, residual_.begin());
  std::ranges::copy(velocity, velocity_.begin());
  return base::ok();
}

double warmUpSparsity(uint64_t step, uint64_t stepsPerStage, double final) {
  // These are the paper's stages. A final sparsity below one of them bounds it.
  constexpr std::array kStages{0.75, 0.9375, 0.984375, 0.996};
  const uint64_t stage = stepsPerStage == 0 ? kStages.size() : step / stepsPerStage;
  return stage < kStages.size() ? std::min(kStages[stage], final) : final;
}

}  // namespace sluice::codec
