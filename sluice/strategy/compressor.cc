#include <sluice/strategy/compressor.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include <sluice/base/check.h>
#include <sluice/kernel/element.h>

namespace sluice::strategy {

std::vector<Compressor::Part> Compressor::tensorsOf(const plan::Plan& plan) {
  std::vector<Part> parts;
  const auto& tensors = plan.model().tensors;
  for (uint32_t t = 0; t < tensors.size(); ++t) parts.push_back({TensorId{t}, 0, tensors[t].elements});
  return parts;
}

std::vector<Compressor::Part> Compressor::slicesOf(const plan::Plan& plan) {
  std::vector<Part> parts;
  for (const plan::Slice& slice : plan.slices()) parts.push_back({slice.tensor, slice.offset, slice.count});
  return parts;
}

Compressor::Compressor(const Rooms& rooms, const DgcSettings& settings, std::span<const Part> parts)
    : plan_(rooms.plan),
      memory_(rooms.memory),
      settings_(settings),
      clip_(settings.clip / std::sqrt(static_cast<double>(rooms.plan.roles().workers.size()))),
      clips_(rooms.plan.model().tensors.size()) {
  if (!rooms.plan.roles().isWorker(rooms.fabric.rank())) return;  // has no gradients
  const codec::DgcOptions options{.momentum = sgdValue(rooms.update.values, "momentum")};
  for (const Part& part : parts) parts_.push_back({part, codec::Dgc(part.count, options)});
}

void Compressor::read(const Part& part, bool hasGradient, double decay, std::vector<float>& gradient) const {
  const TensorMemory& memory = memory_[index(part.tensor)];
  gradient.assign(part.count, 0);
  if (hasGradient && part.count > 0) {
    std::memcpy(gradient.data(), memory.gradient.data() + part.offset * sizeof(float),
                part.count * sizeof(float));
  }
  if (decay == 0) return;
  const auto share = static_cast<float>(decay);
  for (size_t i = 0; i < gradient.size(); ++i)
    gradient[i] += share * kernel::loadAt<float>(memory.result.data(), part.offset + i);
}

float Compressor::clipFactorOf(TensorId tensor, Step step, bool hasGradient, double decay) {
  if (clip_ == 0) return 1;
  Clip& known = clips_[index(tensor)];
  if (!known.isKnown || known.step != step) {
    read({tensor, 0, plan_.model()[tensor].elements}, hasGradient, decay, whole_);
    known = {step, true, codec::clipFactor(whole_, clip_)};
  }
  return known.factor;
}

std::vector<std::byte> Compressor::compress(size_t number, Step step, bool hasGradient,
                                            std::span<const double> values) {
  Compressed& here = parts_[number];
  const double decay = sgdValue(values, "weight_decay");
  const float factor = clipFactorOf(here.part.tensor, step, hasGradient, decay);
  read(here.part, hasGradient, decay, gradient_);
  const double sparsity = codec::warmUpSparsity(index(step), settings_.stepsPerStage, settings_.sparsity);
  return here.dgc.compress(gradient_, sparsity, factor);
}

Compressor::Kept Compressor::kept(TensorId tensor) const {
  Kept kept;
  kept.residual.resize(plan_.model()[tensor].elements);
  kept.velocity.resize(kept.residual.size());
  for (const auto& [part, dgc] : parts_) {
    if (part.tensor != tensor) continue;
    const auto at = static_cast<ptrdiff_t>(part.offset);
    std::ranges::copy(dgc.residual(), kept.residual.begin() + at);
    std::ranges::copy(dgc.velocity(), kept.velocity.begin() + at);
  }
  return kept;
}

void Compressor::restore(TensorId tensor, const Kept* kept) {
  const Kept nothing{std::vector<float>(plan_.model()[tensor].elements),
                     std::vector<float>(plan_.model()[tensor].elements)};
  const Kept& from = kept == nullptr ? nothing : *kept;
  for (auto& [part, dgc] : parts_) {
    if (part.tensor != tensor) continue;
    const Status restored = dgc.restore(std::span(from.residual).subspan(part.offset, part.count),
                                        std::span(from.velocity).subspan(part.offset, part.count));
    SLUICE_CHECK(restored.isOk(), restored.toString());
  }
  clips_[index(tensor)].isKnown = false;
}

}  // namespace sluice::strategy
