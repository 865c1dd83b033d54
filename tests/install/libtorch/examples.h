// The examples of the C++ reference for LibTorch (docs/site/cpp-api.md). gates.cc compiles and runs
// them.
#pragma once

#include <cstdio>
#include <vector>

#include <sluice/torch.h>

namespace examples {

// [Gatekeeper]
// Prints which module is about to read its parameters.
class Announcer final : public sluice::Gatekeeper {
 public:
  void beforeReading(const torch::nn::Module& module) override { names.push_back(module.name()); }
  std::vector<std::string> names;
};
// [Gatekeeper end]

// [Door]
// A module of your own that waits before it reads its parameter.
class ScaleImpl final : public torch::nn::Module, public sluice::GatedModule {
 public:
  ScaleImpl() : scale_(register_parameter("scale", torch::ones({1}))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    door_.pass(*this);
    return x * scale_;
  }
  sluice::Door& door() override { return door_; }
  std::vector<const torch::nn::Module*> gates() const override { return {this}; }

 private:
  torch::Tensor scale_;
  sluice::Door door_;
};
// [Door end]

// [GatedModule]
inline std::vector<std::string> namesOfGates(const sluice::GatedModule& module) {
  std::vector<std::string> names;
  for (const torch::nn::Module* each : module.gates()) names.push_back(each->name());
  return names;
}
// [GatedModule end]

// [Contained]
static_assert(std::is_same_v<sluice::Contained<torch::nn::Linear>::Type, torch::nn::LinearImpl>);
// [Contained end]

// [GatedImpl]
using GatedLinearImpl = sluice::GatedImpl<torch::nn::LinearImpl>;
inline torch::Tensor runGated(GatedLinearImpl& linear, const torch::Tensor& x) {
  return linear.forward(x);  // waits for the layer's parameters first
}
// [GatedImpl end]

// [Gated]
inline torch::Tensor runHead(const torch::Tensor& x) {
  sluice::Gated<torch::nn::Linear> head(8, 2);  // made and used like nn::Linear
  return head->forward(x);
}
// [Gated end]

// [GatedSequential]
inline sluice::GatedSequential makeNet() {
  return sluice::GatedSequential(torch::nn::Linear(6, 8), torch::nn::Tanh(),
                                 torch::nn::Linear(8, 2));
}
// [GatedSequential end]

// [GatedSequentialImpl]
inline size_t countGates(const sluice::GatedSequentialImpl& net) {
  return net.gates().size();  // one for each module
}
// [GatedSequentialImpl end]

// [Error]
inline std::string tried(sluice::Distributed& distributed) {
  try {
    distributed.step();
    return "";
  } catch (const sluice::Error& error) {
    // The code is for programs, the text for people.
    return error.code() == sluice::Code::kPeerLost ? "a rank is lost" : error.what();
  }
}
// [Error end]

// [Distributed]
inline void train(sluice::Job& job, int steps) {
  sluice::GatedSequential net = makeNet();
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-3));
  sluice::Distributed distributed(job, *net, optimizer, "example");
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    net->forward(torch::randn({4, 6})).square().mean().backward();
    distributed.step();  // returns at once
  }
  distributed.leave();
}
// [Distributed end]

// [NoSync]
// Accumulates over all samples but the last, which sends the sum.
inline void accumulate(sluice::Distributed& distributed, sluice::GatedSequential& net,
                       const std::vector<torch::Tensor>& samples) {
  for (size_t i = 0; i + 1 < samples.size(); ++i) {
    const sluice::Distributed::NoSync noSync(distributed);
    net->forward(samples[i]).square().mean().backward();
  }
  net->forward(samples.back()).square().mean().backward();
}
// [NoSync end]

}  // namespace examples
