#include <sluice/algorithms/dgc/compressor.h>

#include <algorithm>
#include <cstring>

#include <sluice/base/check.h>
#include <sluice/data/kernel/element.h>

namespace sluice::algorithms {

std::vector<Compressor::Part> Compressor::tensorsOf(const plan::Plan& plan) {
  std::vector<Part> parts;
  const auto& tensors = plan.model().tensors;
  for (uint32_t t = 0; t < tensors.size(); ++t)
    parts.push_back({TensorId{t}, 0, tensors[t].elements});
  return parts;
}

std::vector<Compressor::Part> Compressor::slicesOf(const plan::Plan& plan) {
  std::vector<Part> parts;
  for (const plan::Slice& slice : plan.slices())
    parts.push_back({slice.tensor, slice.offset, slice.count});
  return parts;
}

Compressor::Compressor(const Context& context, const DgcSettings& settings,
                       std::span<const Part> parts)
    : plan_(context.plan),
      memory_(context.memory),
      settings_(settings),
      clips_(context.plan.model().tensors.size()) {
  if (!context.plan.roles().isWorker(context.fabric.rank())) return;  // has no gradients
  codec::DgcOptions options{.momentum = sgdValue(context.update.values, "momentum"),
                            .masksMomentum = settings.masksMomentum,
                            .keepsRest = settings.keepsRest};
  for (const Part& part : parts) {
    // The tensor's size decides and not the slice's, so that cutting finer does not change what
    // is compressed.
    options.isDense = plan_.model()[part.tensor].elements < settings.denseBelow;
    parts_.push_back({part, codec::Dgc(part.count, options)});
  }
}

void Compressor::read(const Part& part, bool hasGradient, double decay,
                      std::vector<float>& gradient) const {
  const TensorMemory& memory = memory_[index(part.tensor)];
  gradient.assign(part.count, 0);
  if (hasGradient && part.count > 0) {
    std::memcpy(gradient.data(), memory.gradient.data() + part.offset * sizeof(float),
                part.count * sizeof(float));
  }
  // Weight decay is added before compression: added after it, decay would change every element
  // and make the update dense.
  if (decay == 0) return;
  const auto share = static_cast<float>(decay);
  for (size_t i = 0; i < gradient.size(); ++i)
    gradient[i] += share * kernel::loadAt<float>(memory.result.data(), part.offset + i);
}

float Compressor::clipFactorOf(TensorId tensor, Step step, bool hasGradient, double decay) {
  if (!clips()) return 1;
  Clip& known = clips_[index(tensor)];
  // The norm is that of the whole tensor, and its slices are compressed one by one. It is
  // computed with the first of them and kept for the step, since weight decay reads parameters,
  // and these change with the first answers.
  if (!known.isKnown || known.step != step) {
    read({tensor, 0, plan_.model()[tensor].elements}, hasGradient, decay, whole_);
    known = {step, true, codec::clipFactor(whole_, settings_.clip)};
  }
  return known.factor;
}

std::vector<std::byte> Compressor::compress(size_t number, Step step, bool hasGradient,
                                            std::span<const double> values) {
  Compressed& here = parts_[number];
  const double decay = sgdValue(values, "weight_decay");
  const float factor = clipFactorOf(here.part.tensor, step, hasGradient, decay);
  read(here.part, hasGradient, decay, gradient_);
  stepsHere_ = std::max(stepsHere_, index(step) + 1);
  // Warm-up counts the steps of the whole training, also those before the checkpoint that this
  // session began with.
  const auto stepOfAll = static_cast<uint64_t>(static_cast<int64_t>(index(step)) + ahead_);
  const double sparsity =
      codec::warmUpSparsity(stepOfAll, settings_.stepsPerStage, settings_.sparsity);
  return here.dgc.compress(gradient_, sparsity, factor);
}

void Compressor::save(TensorId tensor, SavedTensor& saved) const {
  saved.residual.resize(plan_.model()[tensor].bytes());
  saved.velocity.resize(saved.residual.size());
  for (const auto& [part, dgc] : parts_) {
    if (part.tensor != tensor || part.count == 0) continue;
    const size_t at = part.offset * sizeof(float);
    std::memcpy(saved.residual.data() + at, dgc.residual().data(), dgc.residual().size_bytes());
    std::memcpy(saved.velocity.data() + at, dgc.velocity().data(), dgc.velocity().size_bytes());
  }
}

void Compressor::restore(TensorId tensor, const SavedTensor* saved) {
  const auto read = [](std::span<const std::byte> bytes, const Part& part) {
    std::vector<float> values(part.count);  // zeros, if nothing was saved
    if (!bytes.empty() && part.count > 0)
      std::memcpy(values.data(), bytes.data() + part.offset * sizeof(float),
                  part.count * sizeof(float));
    return values;
  };
  for (auto& [part, dgc] : parts_) {
    if (part.tensor != tensor) continue;
    std::span<const std::byte> residual;
    std::span<const std::byte> velocity;
    if (saved != nullptr) {
      residual = saved->residual;
      velocity = saved->velocity;
    }
    const Status restored = dgc.restore(read(residual, part), read(velocity, part));
    SLUICE_CHECK(restored.isOk(), restored.toString());
  }
  // The parameters were put back too, and weight decay makes them a part of the norm.
  clips_[index(tensor)].isKnown = false;
}

}  // namespace sluice::algorithms
