#include <sluice/algorithms/gossip/share.h>

#include <cstring>

#include <fmt/format.h>

#include <sluice/base/check.h>
#include <sluice/data/kernel/mix.h>

namespace sluice::gossip {
namespace {

double weightOf(std::span<const std::byte> message) {
  double weight = 0;
  std::memcpy(&weight, message.data(), sizeof(weight));
  return weight;
}

}  // namespace

Share::Share(DType dtype, size_t bytes, double weight)
    : dtype_(dtype), weight_(weight), waiting_(bytes), message_(messageBytes(bytes)) {}

double Share::leaving() const {
  return isGiving_ ? weightOf(message_) : 0;
}

std::span<const std::byte> Share::give(std::span<const std::byte> parameters) {
  SLUICE_CHECK(mayGive() && messageBytes(parameters.size()) == message_.size(), parameters.size());
  // The weight leaves together with the parameters it belongs to. Until the message has left,
  // both lie in message_, so a refused one can be taken back.
  weight_ /= 2;
  isGiving_ = true;
  std::memcpy(message_.data(), &weight_, sizeof(weight_));
  std::memcpy(message_.data() + sizeof(weight_), parameters.data(), parameters.size());
  return message_;
}

void Share::refused() {
  SLUICE_CHECK(isGiving_);
  isGiving_ = false;
  add(message_);
}

Status Share::take(std::span<const std::byte> message) {
  if (message.size() != message_.size()) {
    return {Code::kRefused, fmt::format("a share of the model has {} bytes instead of {}",
                                        message.size(), message_.size())};
  }
  const double weight = weightOf(message);
  if (!(weight > 0))
    return {Code::kRefused,
            fmt::format("a share of the model has the weight {}, which must be above 0", weight)};
  // The weights of all workers add up to one, so no worker can have more; a little is left for
  // rounding.
  constexpr double kMostWeight = 1 + 1e-6;
  if (!(weight_ + waitingWeight_ + leaving() + weight <= kMostWeight))
    return {Code::kRefused, fmt::format("a share of the model has the weight {}, with which the "
                                        "weights of all workers exceed 1",
                                        weight)};
  add(message);
  return base::ok();
}

void Share::add(std::span<const std::byte> message) {
  const double weight = weightOf(message);
  const auto parameters = message.subspan(sizeof(weight));
  if (waitingWeight_ == 0) {
    std::memcpy(waiting_.data(), parameters.data(), parameters.size());
  } else {
    const double sum = waitingWeight_ + weight;
    kernel::mix(dtype_, waiting_, parameters, waitingWeight_ / sum, weight / sum);
  }
  waitingWeight_ += weight;
}

void Share::settle(std::span<std::byte> parameters) {
  if (waitingWeight_ == 0) return;
  const double sum = weight_ + waitingWeight_;
  kernel::mix(dtype_, parameters, waiting_, weight_ / sum, waitingWeight_ / sum);
  weight_ = sum;
  waitingWeight_ = 0;
}

}  // namespace sluice::gossip
