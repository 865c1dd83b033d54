// One LibTorch model in training together with the other ranks of the job: gradients go out as backward makes
// them, and each gate (gated.h) opens when the next forward pass reaches it.
//
//   Distributed distributed(*job, *net, optimizer);
//   for (...) {
//     optimizer.zero_grad();
//     loss(net->forward(x), y).backward();
//     distributed.step();           // returns at once
//   }
//   distributed.leave();
//
// The life of a parameter in a step:
//   backward   its gradient is handed over as soon as it is there, and is not in grad() any more
//   step()     the optimizer's settings are frozen, every gate is closed
//   forward    a gate that is passed waits for its means, and has the optimizer run for its parameters alone
//
// All of it belongs to the training thread. Errors are thrown: Error below. The program may catch one and go
// on: a forward pass, step(), synchronize() or drain() that a timeout or the job's interruption has ended is
// called again and goes on where it stopped; after backward(), step() comes next. An exception in the middle
// of backward or of the optimizer cannot be made good: every later call then says so.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include <torch/torch.h>

#include <sluice/pytorch/libtorch/gated.h>
#include <sluice/session/session.h>

namespace sluice::pytorch {

class Error final : public std::runtime_error {
 public:
  explicit Error(const Status& status) : std::runtime_error(status.message()), code_(status.code()) {}
  Code code() const { return code_; }

 private:
  Code code_;
};

void throwIfError(const Status& status);

template <typename T>
T valueOrThrow(Result<T> result) {
  throwIfError(result.status());
  return *std::move(result);
}

class Distributed final : public Gatekeeper {
 public:
  // Every rank makes one, of the same model. All begin with rank 0's parameters and buffers. What a module
  // reads is expected to be registered in the order of the forward pass: that decides what is sent first.
  //
  // The optimizer must treat each parameter for itself, as SGD, Adam, AdamW, RMSprop and Adagrad do; LBFGS
  // does not. REQUIRES: job, model and optimizer outlive this; parameters lie in host memory.
  Distributed(session::Job& job, torch::nn::Module& model, torch::optim::Optimizer& optimizer,
              const std::string& name = "model");

  // Without leave() first, the other ranks are told that this one has failed.
  ~Distributed() override;

  Distributed(const Distributed&) = delete;
  Distributed& operator=(const Distributed&) = delete;

  // Instead of the optimizer's. Parameters that are in no gate have their new values when it returns; the
  // others when their gate is passed. Gradients are used up by it.
  void step();

  // After backward: the means are in grad(), for clipping and the like. After step(): every parameter has its
  // new value, for whoever reads it without passing its gate.
  void synchronize();

  // While it lives, backward only accumulates. The next one after it sends the sum.
  class NoSync final {
   public:
    explicit NoSync(Distributed& distributed) : distributed_(distributed) { ++distributed_.holdingBack_; }
    ~NoSync() { --distributed_.holdingBack_; }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    Distributed& distributed_;
  };

  // Everybody has rank 0's afterwards: for running means of normalisation layers, before a test or a
  // checkpoint.
  void broadcastBuffers();

  // With --algorithm pipe, after the last step(): applies the gradients that are still late. Every rank calls
  // it.
  void drain();

  // Together with all ranks, after the last step.
  void leave();

  session::Session& session() { return *session_; }

  void beforeReading(const torch::nn::Module& module) override;

 private:
  enum class Gradient {
    kLocal,       // in grad(), if there is one
    kTravelling,  // the mean is on its way
    kMean,        // in grad()
    kPutAside,    // was in grad() when step() was called, and waits for the gate
  };
  struct Parameter {
    std::string name;
    torch::Tensor value;
    size_t gate = 0;
    torch::Tensor gradient{};  // travelling, or put aside
    Gradient state = Gradient::kLocal;
    uint64_t round = 0;  // the last one that it was handed over in
  };
  struct Gate {
    std::vector<size_t> parameters;
    std::vector<std::vector<torch::Tensor>> groups;  // the same, by the optimizer's groups
    bool isClosed = false;
  };
  class Hook;

  void check();
  void breakBy(const std::string& what);
  template <typename Work>
  void whole(const std::string& doing, Work&& work);
  void refuseWhileOwed();
  void finishRound();
  void await(const Parameter& parameter);
  void findGates();
  void sortIntoGroups();
  void openSession(session::Job& job, const std::string& name);
  void broadcast(torch::Tensor tensor);
  void gradientIsThere(size_t parameter);
  void backwardEnds();
  void handOver(Parameter& parameter);
  void settle(Parameter& parameter);
  void open(Gate& gate);
  void runOptimizer(const Gate& gate);
  TensorId idOf(const Parameter& parameter) const;

  torch::nn::Module& model_;
  torch::optim::Optimizer& optimizer_;
  std::vector<Parameter> parameters_;  // index = TensorId
  std::vector<Gate> gates_;            // the last is of those that no gated module reads
  std::unordered_map<const torch::nn::Module*, std::vector<size_t>> gatesOf_;
  std::vector<std::unique_ptr<torch::optim::OptimizerOptions>> frozen_;  // by group
  std::unique_ptr<session::Session> session_;
  int holdingBack_ = 0;
  uint64_t round_ = 0;  // counts backward passes that send
  bool inBackward_ = false;
  bool roundHasLeft_ = false;  // a gradient of this round has been handed over
  bool roundIsDue_ = false;    // backward has ended, but not all of its gradients have been handed over
  bool stepIsTaken_ = false;   // by a step() that has not returned
  std::string owed_{};         // a call that has to be made again first
  std::string broken_{};       // why the model is no longer good
};

}  // namespace sluice::pytorch
