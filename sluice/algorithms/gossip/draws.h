// The random draws of gossip: whether a worker sends after a step, and to whom. Reproducible: a pure
// function of the job's seed, the worker, the kind of draw and the step. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sluice/base/random.h>

namespace sluice::gossip {

// Kinds of draws, which are independent of each other.
enum class Draw : uint64_t {
  kGraph,    // of a random graph; the same for all workers
  kWhether,  // a worker sends after this step
  kWhom,     // the receiver
};

class Draws final {
 public:
  // `worker`: its position among the workers.
  Draws(uint64_t seed, uint64_t worker) : seed_(seed), worker_(worker) {}

  // Returns true with this probability.
  bool isHit(uint64_t step, double probability) const {
    return base::fromZeroToOne(number(Draw::kWhether, step)) < probability;
  }
  // Returns one of 0 to count - 1, all equally likely. REQUIRES: count > 0
  size_t oneOf(size_t count, uint64_t step) const { return number(Draw::kWhom, step) % count; }

 private:
  uint64_t number(Draw draw, uint64_t step) const {
    const uint64_t mine =
        base::splitmix64(base::splitmix64(seed_, static_cast<uint64_t>(draw)), worker_);
    return base::splitmix64(mine, step);
  }

  uint64_t seed_;
  uint64_t worker_;
};

// Returns the seed of a random graph, the same for all workers.
constexpr uint64_t graphSeed(uint64_t seed) {
  return base::splitmix64(seed, static_cast<uint64_t>(Draw::kGraph));
}

}  // namespace sluice::gossip
