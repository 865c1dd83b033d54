#include <tools/bench/utilisation.h>

#include <sluice/base/thread.h>

namespace sluice::bench {
namespace {

constexpr auto kStep = std::chrono::milliseconds(10);

}  // namespace

UtilisationSampler::UtilisationSampler(InterfaceCounters counters)
    : counters_(std::move(counters)),
      thread_(base::startThread("sluice-usage", [this] { sample(); })) {}

void UtilisationSampler::sample() {
  TimePoint next = base::RealClock().now();
  const base::Lock lock(mutex_);
  do {
    samples_.push_back(counters_.read());
    next += kStep;
  } while (!wake_.waitUntil(mutex_, next, [this]() SLUICE_REQUIRES(mutex_) { return stopping_; }));
}

void UtilisationSampler::stop() {
  {
    const base::Lock lock(mutex_);
    stopping_ = true;
  }
  wake_.notifyAll();
  if (thread_.joinable()) thread_.join();
}

Utilisation UtilisationSampler::finish() {
  stop();
  Utilisation utilisation{.stepSeconds = base::seconds(kStep)};
  const auto bits = [&](uint64_t before, uint64_t after) {
    return static_cast<double>(after - before) * 8 / utilisation.stepSeconds;
  };
  for (size_t i = 1; i < samples_.size(); ++i) {
    utilisation.sentBits.push_back(bits(samples_[i - 1].sent, samples_[i].sent));
    utilisation.receivedBits.push_back(bits(samples_[i - 1].received, samples_[i].received));
  }
  return utilisation;
}

}  // namespace sluice::bench
