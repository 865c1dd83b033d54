// Deep gradient compression (Lin et al. 2018) for one tensor, or a slice of one, at one worker: of
// each step's gradient only the largest elements are sent, the others are kept and added to the
// next. With g the gradient, clipped:
//   u = m * u + g;  v += u;  send v where |v| is among the largest;
//   there v = 0 and, if masked, u = 0.
// Without error feedback v = u in every step: the elements that are not sent are lost. A dense
// tensor sends all of u in every step and keeps u: plain momentum, as in the authors' program for
// biases and norms.
// The message contains the momentum, so the receiver of the sum makes a plain step, x -= lr * sum.
//
// The threshold is guessed from a sample and then corrected: at most as many elements are sent as
// the sparsity allows. If all elements take fewer bytes (sparse.h), all are sent.
//
// Gradients are clipped by the norm of this tensor alone: to know the norm of the whole model, the
// first layer would have to wait for the last.
//
// Belongs to one loop or thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <sluice/base/status.h>

namespace sluice::codec {

struct DgcOptions {
  double momentum = 0.9;
  bool masksMomentum = true;  // also forget the velocity of elements that are sent
  bool keepsRest = true;      // error feedback: elements that are not sent are added to the next
  bool isDense = false;       // sends every element in every step, and masks nothing
};

// Returns the factor that scales one worker's gradient so that its norm is at most `most`. A `most`
// of 0 does not clip.
float clipFactor(std::span<const float> gradient, double most);

// Returns the limit for the gradient of each of the workers whose mean is one step, so that the
// mean keeps to `limit` on average. The gradients of N workers are about orthogonal in their noise,
// so their mean is 1/sqrt(N) as long as each of them. The paper's limit / sqrt(N) is the same one,
// since there a worker's gradient is divided by N before it is clipped.
double clipOfEach(double limit, size_t workersPerStep);

class Dgc final {
 public:
  Dgc(size_t elements, const DgcOptions& options);

  // Returns the bytes to send for this step, in the format of sparse.h. `sparsity` is the share
  // that is kept back, 0 to 1 (1 sends the largest only); `scale` clips the gradient. REQUIRES: as
  // many elements as the object was made for.
  std::vector<std::byte> compress(std::span<const float> gradient, double sparsity,
                                  float scale = 1);

  // For checkpoints: the values that have not been sent, and the velocity.
  std::span<const float> residual() const { return residual_; }
  std::span<const float> velocity() const { return velocity_; }
  Status restore(std::span<const float> residual, std::span<const float> velocity);

 private:
  std::vector<uint32_t> placesToSend(double sparsity);
  std::vector<uint32_t> everyPlace() const;
  std::vector<uint32_t> largest(size_t count);

  const DgcOptions options_;
  std::vector<float> velocity_;    // u
  std::vector<float> residual_;    // v
  std::vector<float> magnitudes_;  // scratch
};

// Returns the sparsity of the paper's warm-up: 75 %, 93.75 %, 98.4375 %, 99.6 % of the elements are
// kept back in the first four stages, then `final`. No stage keeps back more than `final`. In the
// paper a stage is an epoch.
double warmUpSparsity(uint64_t step, uint64_t stepsPerStage, double final);

}  // namespace sluice::codec
