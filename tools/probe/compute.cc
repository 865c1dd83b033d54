#include <tools/probe/compute.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <sluice/base/cpu_time.h>
#include <sluice/data/codec/codec.h>

namespace sluice::probe {
namespace {

constexpr int kTimes = 8;
constexpr int kSteps = 5'000'000;  // about 15 ms
constexpr auto kCodecTime = std::chrono::milliseconds(15);

// Each step waits for the one before: neither vectors nor caches nor a neighbour on the same core
// make much of a difference, the clock rate does.
double workOnce(double x) {
  for (int step = 0; step < kSteps; ++step) x = x * 0.999 + 0.001;
  return x;
}

}  // namespace

ComputeFacts measureCompute() {
  ComputeFacts better;
  volatile double value = 1.5;  // so that no compiler leaves the work out
  const base::RealClock clock;
  double fastest = 0;
  for (int half = 0; half < 2; ++half) {
    ComputeFacts facts;
    for (int i = 0; i < kTimes / 2; ++i) {
      const TimePoint begun = clock.now();
      const Duration cpu = base::threadCpuTime();
      value = workOnce(value);
      const double used = base::seconds(base::threadCpuTime() - cpu);
      facts.totalSeconds += base::seconds(clock.now() - begun);
      facts.totalCpuSeconds += used;
      fastest = fastest > 0 ? std::min(fastest, used) : used;
    }
    const bool isBetter = half == 0 || facts.totalSeconds * better.totalCpuSeconds <
                                           better.totalSeconds * facts.totalCpuSeconds;
    if (isBetter) better = facts;
  }
  better.cpuSeconds = fastest;
  return better;
}

std::map<std::string, double> measureCodecs() {
  constexpr size_t kElements = codec::kBlock * 256;
  std::vector<float> gradients(kElements);
  for (size_t i = 0; i < kElements; ++i) gradients[i] = static_cast<float>(i % 997) * 1e-3F;
  std::map<std::string, double> costs;
  for (const codec::Codec* codec : {&codec::kFp16, &codec::kBf16, &codec::kInt8}) {
    std::vector<std::byte> encoded(codec->encodedBytes(kElements));
    const Duration begun = base::threadCpuTime();
    Duration used{};
    double bytes = 0;
    while (used < kCodecTime) {
      codec->encode(std::as_bytes(std::span(gradients)), encoded);
      codec->decode(encoded, std::as_writable_bytes(std::span(gradients)));
      bytes += kElements * sizeof(float);
      used = base::threadCpuTime() - begun;
    }
    costs[std::string(codec->name())] = base::seconds(used) / bytes * 1e9;
  }
  return costs;
}

}  // namespace sluice::probe
