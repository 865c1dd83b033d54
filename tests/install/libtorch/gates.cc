// Two ranks with gates against one process without: every rank computes both ranks' gradients on a
// plain copy of the model, takes their mean as sluice does, and must have the same bits after every
// step. The model with gates is in host memory or on a device, the plain ones are in host memory.
#include <cstdio>
#include <cstdlib>
#include <thread>

#include <sluice/torch.h>

#include "examples.h"

namespace nn = torch::nn;
using namespace sluice;

namespace {

constexpr int kSteps = 12;

void require(bool holds, const std::string& what) {
  if (holds) return;
  throw std::runtime_error(what);
}

template <typename Call>
void requireError(Call&& call, const std::string& text) {
  std::string said = "nothing";
  try {
    call();
  } catch (const Error& error) {
    said = error.what();
  }
  require(said.find(text) != std::string::npos,
          "an error with '" + text + "' is expected, not " + said);
}

// A gated Sequential; gated layers in a plain one; weights that two layers share; parameters
// outside any gate; a layer that only rank 0 uses, and one that nobody uses.
template <template <typename> class Wrapped, typename Sequence>
struct Net : nn::Module {
  Net() {
    body = register_module("body", Sequence(nn::Linear(6, 8), nn::Tanh(), nn::BatchNorm1d(8)));
    tail = register_module("tail", nn::Sequential(Wrapped<nn::Linear>(8, 8), nn::Tanh()));
    again = register_module("again", Wrapped<nn::Linear>(8, 8));
    again->weight = again->register_parameter("tied", tail[0]->template as<nn::Linear>()->weight);
    onlyOne = register_module("only_one", Wrapped<nn::Linear>(8, 8));
    nobody = register_module("nobody", Wrapped<nn::Linear>(8, 8));
    scale = register_parameter("scale", torch::ones({8}));
  }
  torch::Tensor forward(const torch::Tensor& x, bool isFirstRank) {
    auto y = again->forward(tail->forward(body->forward(x))) * scale;
    return isFirstRank ? y + onlyOne->forward(y) : y;
  }
  Sequence body{nullptr};
  nn::Sequential tail{nullptr};
  Wrapped<nn::Linear> again{nullptr}, onlyOne{nullptr}, nobody{nullptr};
  torch::Tensor scale;
};

template <typename Module>
using Plain = Module;
using PlainNet = Net<Plain, nn::Sequential>;
using GatedNet = Net<Gated, GatedSequential>;

template <typename Holder>
torch::optim::AdamW adam(Holder& net) {
  return torch::optim::AdamW(net.parameters(), torch::optim::AdamWOptions(0.01));
}

torch::Tensor batch(int step, int64_t rank, int part) {
  torch::manual_seed(1000 * step + 10 * rank + part + 1);
  return torch::randn({4, 6});
}

template <typename AnyNet>
void backward(AnyNet& net, int step, int64_t rank, int part) {
  const torch::Tensor x = batch(step, rank, part).to(net.scale.device());
  net.forward(x, rank == 0).square().sum().backward();
}

void copyState(nn::Module& to, const nn::Module& from) {
  const torch::NoGradGuard noGrad;
  for (const auto& item : from.named_parameters())
    to.named_parameters()[item.key()].copy_(item.value());
  for (const auto& item : from.named_buffers()) to.named_buffers()[item.key()].copy_(item.value());
}

// The reference: gradients of both ranks, each with its own copy of the model as every rank has its
// own buffers.
struct Reference {
  explicit Reference(const nn::Module& like) : optimizer(adam(main)) {
    copyState(main, like);
    for (auto& net : ranks) copyState(net, like);
  }
  void step(int number, int parts, bool clips, double rate) {
    std::vector<std::vector<torch::Tensor>> gradients;
    for (int64_t rank = 0; rank < 2; ++rank) {
      const torch::NoGradGuard noGrad;
      for (const auto& item : main.named_parameters())
        ranks[rank].named_parameters()[item.key()].copy_(item.value());
      ranks[rank].zero_grad();
      for (int part = 0; part < parts; ++part) {
        const torch::AutoGradMode grad(true);
        backward(ranks[rank], number, rank, part);
      }
      for (const auto& parameter : ranks[rank].parameters())
        gradients.resize(2), gradients[rank].push_back(parameter.grad());
    }
    const auto parameters = main.parameters();
    for (size_t p = 0; p < parameters.size(); ++p) {
      torch::Tensor mean;
      for (const auto& gradient : {gradients[0][p], gradients[1][p]}) {
        if (!gradient.defined()) continue;
        mean = mean.defined() ? mean + gradient * 0.5 : gradient * 0.5;
      }
      auto parameter = parameters[p];
      parameter.mutable_grad() = mean;
    }
    if (clips) nn::utils::clip_grad_norm_(main.parameters(), 0.5);
    optimizer.param_groups()[0].options().set_lr(rate);
    optimizer.step();
  }
  PlainNet main;
  PlainNet ranks[2];
  torch::optim::AdamW optimizer;
};

void run(const torch::Device& device) {
  bool interrupts = false;
  const auto interruption = [&interrupts]() -> sluice::Status {
    return std::exchange(interrupts, false)
               ? sluice::Status(sluice::Code::kCancelled, "interrupted")
               : sluice::Status();
  };
  const auto job = valueOrThrow(
      Job::join(valueOrThrow(sluice::Config::fromEnvironment()), {.interruption = interruption}));
  const auto rank = static_cast<int64_t>(index(job->rank()));
  require(job->worldSize() == 2, "wants two ranks");
  torch::manual_seed(5 + rank);  // different on purpose: all begin with rank 0's
  GatedNet net;
  net.to(device);
  auto optimizer = adam(net);
  Distributed distributed(*job, net, optimizer);
  Reference reference(net);

  double rate = 0.01;
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    const int parts = step == 5 ? 3 : 1;
    for (int part = 0; part + 1 < parts; ++part) {
      const Distributed::NoSync noSync(distributed);
      backward(net, step, rank, part);
    }
    if (step == 7 && rank == 1) std::this_thread::sleep_for(std::chrono::seconds(1));
    backward(net, step, rank, parts - 1);
    const bool clips = step >= 8;
    if (clips) {
      distributed.synchronize();
      nn::utils::clip_grad_norm_(net.parameters(), 0.5);
    }
    if (step == 7 && rank == 0) {  // rank 1 is late: the wait for what is in no gate is interrupted
      interrupts = true;
      requireError([&] { distributed.step(); }, "interrupted");
      requireError([&] { net.body->forward(batch(step, rank, 0).to(device)); }, "call it again");
      optimizer.zero_grad();  // must not reach the step that was begun
    }
    distributed.step();
    reference.step(step, parts, clips, rate);
    rate *= 0.9;
    optimizer.param_groups()[0].options().set_lr(
        rate);  // must not reach the step that was just taken
  }

  // A checkpoint reads every gated parameter without a word about gates.
  std::stringstream saved;
  torch::save(net.body, saved);
  nn::Sequential loaded(nn::Linear(6, 8), nn::Tanh(), nn::BatchNorm1d(8));
  torch::load(loaded, saved, torch::kCPU);
  distributed.synchronize();
  for (const auto& item : reference.main.named_parameters()) {
    require(torch::equal(item.value(), net.named_parameters()[item.key()].cpu()),
            item.key() + " has other bits than the reference");
  }

  require(torch::equal(loaded->parameters()[0], reference.main.body->parameters()[0]),
          "a checkpoint has old parameters");

  // Reading a parameter around its gate is noticed.
  distributed.synchronize();
  backward(net, kSteps, rank, 0);
  distributed.step();
  bool isNoticed = false;
  try {
    net.body->ptr<nn::LinearImpl>(0)->forward(torch::ones({1, 6}, device)).sum().backward();
  } catch (const std::exception& error) {
    isNoticed = std::string(error.what()).find("'body.0.") != std::string::npos;
  }
  require(isNoticed, "a stale parameter was used unnoticed");
  distributed.leave();
  examples::train(*job, 2);
  std::printf("rank %d on %s: the same bits\n", static_cast<int>(rank), device.str().c_str());
}

}  // namespace

// For on_device.py, which knows a device that this program does not. Returns an exit code.
extern "C" int trainWithGates(const char* device) {
  try {
    run(torch::Device(device));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gates: %s\n", error.what());
    return 1;
  }
  return 0;
}

int main() {
  return trainWithGates("cpu");
}
