/// @file
/// One LibTorch model in training together with the other ranks of the job: gradients go out as
/// backward makes them, and each layer waits for its own parameters only when the next forward pass
/// reaches it.
///
/// @code
///   auto job = sluice::valueOrThrow(sluice::Job::join());
///   sluice::GatedSequential net(nn::Conv2d(1, 16, 3), nn::ReLU(), ...);  // each module has a gate
///   sluice::Gated<nn::Linear> head(128, 10);                             // any other module
///   torch::optim::AdamW optimizer(net->parameters());
///   sluice::Distributed distributed(*job, *net, optimizer);
///   for (...) {
///     optimizer.zero_grad();
///     loss(net->forward(x), y).backward();
///     distributed.step();           // returns at once
///   }
///   distributed.leave();
/// @endcode
///
/// LibTorch has no forward hooks, so a gate has to be part of the module. Parameters have the same
/// names as in the module without a gate. Nothing waits until a Distributed trains the model.
///
/// The life of a parameter in a step:
/// @code
///   backward   its gradient is handed over as soon as it is there, and is not in grad() any more
///   step()     the optimizer's settings are frozen, every gate is closed
///   forward    a gate that is passed waits for its means, and has the optimizer run for its
///              parameters alone
/// @endcode
///
/// Parameters lie in host memory, on one accelerator of PyTorch, or on both.
///
/// Call everything on the training thread. Errors are thrown as Error. The program may catch one
/// and go on. If a timeout or the job's interruption has ended a forward pass, step(),
/// synchronize() or drain(), call it again: it goes on where it stopped. If one of these has ended
/// backward(), call step() next. An exception in the middle of backward or of the optimizer breaks
/// the model: every later call then throws an error that says so.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <ostream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <sluice/job.h>
#include <sluice/session.h>

namespace sluice {

class TorchDevice;

/// Opens the gates that modules wait at.
class Gatekeeper {
 public:
  virtual ~Gatekeeper() = default;

  /// Waits until the parameters of `module`, which is about to read them, are up to date.
  virtual void beforeReading(const torch::nn::Module& module) = 0;
};

/// The place where a module waits for its parameters.
class Door final {
 public:
  /// Sets the keeper; null if nobody trains the module. REQUIRES: the keeper outlives the door, or
  /// is taken away before it ends.
  void setKeeper(Gatekeeper* keeper) { keeper_ = keeper; }
  /// Waits for the module's parameters.
  void pass(const torch::nn::Module& module) const {
    if (keeper_ != nullptr) keeper_->beforeReading(module);
  }

 private:
  Gatekeeper* keeper_ = nullptr;
};

/// A module that waits before it reads its parameters.
class GatedModule {
 public:
  virtual ~GatedModule() = default;
  /// Returns the place where it waits.
  virtual Door& door() = 0;
  /// Returns the modules that it passes its door for, one by one, in the order of the forward pass.
  virtual std::vector<const torch::nn::Module*> gates() const = 0;
};

template <typename Impl, typename Forward = decltype(&Impl::forward)>
class GatedImpl;

/// Spells out forward(), as Sequential and AnyModule ask of a module.
template <typename Impl, typename Output, typename Owner, typename... Inputs>
class GatedImpl<Impl, Output (Owner::*)(Inputs...)> final : public Impl, public GatedModule {
 public:
  using Impl::Impl;  ///< Is made like the module.

  /// Waits, and runs the module.
  Output forward(Inputs... inputs) {
    door_.pass(*this);
    return Impl::forward(std::forward<Inputs>(inputs)...);
  }

  /// Waits, so that new values are saved.
  void save(torch::serialize::OutputArchive& archive) const override {
    door_.pass(*this);
    Impl::save(archive);
  }

  /// Waits, and returns a copy without a gate: nobody trains a copy.
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override {
    door_.pass(*this);
    return Impl::clone(device);
  }

  Door& door() override { return door_; }  ///< The module's door.
  std::vector<const torch::nn::Module*> gates() const override { return {this}; }  ///< The module.

 private:
  Door door_;
};

/// Finds the class behind a holder such as nn::Linear. A class that has no holder stands for
/// itself.
template <typename Module, typename = void>
struct Contained {
  using Type = Module;  ///< Is the module itself.
};
/// Does so for a holder.
template <typename Module>
struct Contained<Module, std::void_t<typename Module::ContainedType>> {
  using Type = typename Module::ContainedType;  ///< Is what it holds.
};

/// A module with a gate, made and used like the module itself. The module's forward() must be one
/// function, not several.
template <typename Module>
class Gated final : public torch::nn::ModuleHolder<GatedImpl<typename Contained<Module>::Type>> {
 public:
  /// Is made like the module.
  using torch::nn::ModuleHolder<GatedImpl<typename Contained<Module>::Type>>::ModuleHolder;
};

/// A Sequential with a gate before each of its modules.
class GatedSequentialImpl final : public torch::nn::SequentialImpl, public GatedModule {
 public:
  using SequentialImpl::SequentialImpl;  ///< Is made like a Sequential.

  /// Runs one module after the other, each once its parameters are here.
  template <typename Output = torch::Tensor, typename... Inputs>
  Output forward(Inputs&&... inputs) {
    TORCH_CHECK(!is_empty(), "Cannot call forward() on an empty GatedSequential");
    auto module = begin();
    door_.pass(*module->ptr());
    torch::nn::AnyValue value = module->any_forward(std::forward<Inputs>(inputs)...);
    for (++module; module != end(); ++module) {
      door_.pass(*module->ptr());
      value = module->any_forward(std::move(value));
    }
    return value.template get<Output>();
  }

  /// Waits for all parameters, and saves them.
  void save(torch::serialize::OutputArchive& archive) const override {
    passAll();
    SequentialImpl::save(archive);
  }
  /// Waits for all parameters, and copies them.
  std::shared_ptr<Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override {
    passAll();
    return SequentialImpl::clone(device);
  }

  /// Prints its name.
  void pretty_print(std::ostream& stream) const override { stream << "sluice::GatedSequential"; }

  Door& door() override { return door_; }  ///< overrides that of GatedModule
  /// Overrides that of GatedModule.
  std::vector<const Module*> gates() const override {
    std::vector<const Module*> modules;
    for (const auto& module : *this) modules.push_back(module.ptr().get());
    return modules;
  }

 private:
  void passAll() const {
    for (const Module* module : gates()) door_.pass(*module);
  }

  Door door_;
};

/// The holder of a GatedSequentialImpl, made and used like nn::Sequential.
class GatedSequential final : public torch::nn::ModuleHolder<GatedSequentialImpl> {
 public:
  using torch::nn::ModuleHolder<GatedSequentialImpl>::ModuleHolder;  ///< Is made from modules.
  GatedSequential() = default;                                       ///< Holds nothing yet.
  /// Is made from modules with names.
  GatedSequential(std::initializer_list<torch::nn::NamedAnyModule> modules)
      : ModuleHolder(std::make_shared<GatedSequentialImpl>(modules)) {}
};

/// An error of sluice, thrown.
class Error final : public std::runtime_error {
 public:
  /// Takes the text of the error.
  explicit Error(const Status& status)
      : std::runtime_error(status.message()), code_(status.code()) {}
  Code code() const { return code_; }  ///< Returns the kind of the error.

 private:
  Code code_;
};

void throwIfError(const Status& status);  ///< Throws an Error if `status` is one.

/// Returns the value, or throws the Error.
template <typename T>
T valueOrThrow(Result<T> result) {
  throwIfError(result.status());
  return *std::move(result);
}

/// One model in training; see above.
class Distributed final : public Gatekeeper {
 public:
  /// Begins training with rank 0's parameters and buffers. Every rank makes one, of the same model.
  /// Register the parameters and modules in the order of the forward pass: that order decides what
  /// is sent first.
  ///
  /// The optimizer must treat each parameter for itself, as SGD, Adam, AdamW, RMSprop and Adagrad
  /// do; LBFGS does not. REQUIRES: job, model and optimizer outlive this; parameters do not
  /// change their device.
  Distributed(Job& job, torch::nn::Module& model, torch::optim::Optimizer& optimizer,
              const std::string& name = "model");

  /// Tells the other ranks that this one has failed, unless leave() came first.
  ~Distributed() override;

  Distributed(const Distributed&) = delete;
  Distributed& operator=(const Distributed&) = delete;

  /// Takes the place of the optimizer's step(). Parameters that are in no gate have their new
  /// values when it returns; the others have them when their gate is passed. It uses up the
  /// gradients.
  void step();

  /// Waits for all results. After backward, the means are then in grad(), for clipping and the
  /// like. After step(), every parameter then has its new value, for code that reads it without
  /// passing its gate.
  void synchronize();

  /// Makes backward only accumulate while this object lives. The next backward after it sends the
  /// sum.
  class NoSync final {
   public:
    /// Holds gradients back from now on.
    explicit NoSync(Distributed& distributed) : distributed_(distributed) {
      ++distributed_.holdingBack_;
    }
    ~NoSync() { --distributed_.holdingBack_; }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    Distributed& distributed_;
  };

  /// Copies rank 0's buffers to every rank, such as the running means of normalisation layers. Call
  /// it before a test or a checkpoint.
  void broadcastBuffers();

  /// Applies the gradients that are still late with --algorithm pipe. Every rank calls it, after
  /// the last step().
  void drain();

  /// Leaves in good order. Every rank calls it, after the last step.
  void leave();

  Session& session() { return *session_; }  ///< Returns the session underneath.

  void beforeReading(const torch::nn::Module& module) override;  ///< Gatekeeper's.

 private:
  enum class Gradient {
    kLocal,       ///< in grad(), if there is one
    kTravelling,  ///< the mean is on its way
    kMean,        ///< in grad()
    kPutAside,    ///< was in grad() when step() was called, and waits for the gate
  };
  struct Parameter {
    std::string name;
    torch::Tensor value;
    size_t gate = 0;
    torch::Tensor gradient{};  ///< travelling, or put aside
    Gradient state = Gradient::kLocal;
    uint64_t round = 0;  ///< the last one that it was handed over in
    bool isOnDevice = false;
  };
  struct Gate {
    std::vector<size_t> parameters;
    std::vector<std::vector<torch::Tensor>> groups;  ///< the same, by the optimizer's groups
    bool isClosed = false;
    /// The last update on a device, which readers on other streams wait for.
    std::optional<c10::Stream> updateStream{};
    std::shared_ptr<DeviceMark> update{};
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
  void useDeviceOf(const std::string& name, const torch::Tensor& value);
  void sendAbsence(const Parameter& parameter);
  void follow(const Gate& gate);
  void sortIntoGroups();
  void openSession(Job& job, const std::string& name);
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
  std::vector<Parameter> parameters_;  ///< index = TensorId
  std::vector<Gate> gates_;  ///< the last one is for parameters that no gated module reads
  std::unordered_map<const torch::nn::Module*, std::vector<size_t>> gatesOf_;
  std::vector<std::unique_ptr<torch::optim::OptimizerOptions>> frozen_;  ///< by group
  std::unique_ptr<TorchDevice> device_;  ///< null: all parameters are in host memory
  std::unique_ptr<Session> session_;
  /// Hooks of parameters on a device run on a thread of autograd's, beside those of others.
  std::mutex hooks_;
  int holdingBack_ = 0;
  uint64_t round_ = 0;  ///< counts backward passes that send
  bool inBackward_ = false;
  bool roundHasLeft_ = false;  ///< a gradient of this round has been handed over
  /// True iff backward has ended, but not all of its gradients have been handed over.
  bool roundIsDue_ = false;
  bool stepIsTaken_ = false;  ///< by a step() that has not returned
  std::string owed_{};        ///< the error that asks for a missing call; empty if none is missing
  std::string broken_{};      ///< the error that broke the model; empty if it is whole
};

}  // namespace sluice
