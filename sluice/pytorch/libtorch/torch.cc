// This file is compiled in the project that uses it, so that it fits the Torch found there. It
// includes public headers, and torch_device.h beside it.
#include <sluice/torch.h>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <functional>
#include <span>

#include "torch_device.h"  // NOLINT: installed beside this file

namespace sluice {
namespace {

DType dtypeOf(const torch::Tensor& tensor, const std::string& name) {
  switch (tensor.scalar_type()) {
    case torch::kFloat32: return DType::kF32;
    case torch::kFloat64: return DType::kF64;
    case torch::kBFloat16: return DType::kBF16;
    case torch::kFloat16: return DType::kF16;
    default:
      throw Error({Code::kInvalidArgument,
                   c10::str("'", name, "' is ", c10::toString(tensor.scalar_type()),
                            ": only float32, float64, bfloat16 and float16 are trained")});
  }
}

std::span<std::byte> bytesOf(const torch::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

// Returns the gated modules in the order in which they are registered. The model itself may lie on
// the stack, so it is not asked for a shared pointer.
std::vector<GatedModule*> gatedModulesIn(torch::nn::Module& model) {
  std::vector<GatedModule*> found;
  if (auto* gated = dynamic_cast<GatedModule*>(&model)) found.push_back(gated);
  for (const auto& module : model.modules(/*include_self=*/false)) {
    if (auto* gated = dynamic_cast<GatedModule*>(module.get())) found.push_back(gated);
  }
  return found;
}

}  // namespace

void throwIfError(const Status& status) {
  if (!status.isOk()) throw Error(status);
}

class Distributed::Hook final : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit Hook(std::function<void()> then) : then_(std::move(then)) {}
  void operator()(const torch::Tensor&) override { then_(); }

 private:
  const std::function<void()> then_;
};

Distributed::Distributed(Job& job, torch::nn::Module& model, torch::optim::Optimizer& optimizer,
                         const std::string& name)
    : model_(model), optimizer_(optimizer) {
  findGates();
  sortIntoGroups();
  openSession(job, name);
  const torch::NoGradGuard noGrad;
  // All ranks start from rank 0's values before any hook can send a gradient of another start.
  for (const Parameter& parameter : parameters_) broadcast(parameter.value);
  broadcastBuffers();
  for (size_t p = 0; p < parameters_.size(); ++p) {
    torch::autograd::impl::set_post_acc_grad_hooks(
        parameters_[p].value, std::make_unique<Hook>([this, p] { gradientIsThere(p); }));
  }
  for (GatedModule* gated : gatedModulesIn(model_)) gated->door().setKeeper(this);
}

Distributed::~Distributed() {
  for (GatedModule* gated : gatedModulesIn(model_)) gated->door().setKeeper(nullptr);
  for (const Parameter& parameter : parameters_)
    torch::autograd::impl::set_post_acc_grad_hooks(parameter.value, nullptr);
  if (session_ != nullptr) session_->abandon("has ended without leave()");
}

// A parameter belongs to the first gate that reads it; a module waits for every gate that one of
// its parameters belongs to, since two modules may share one.
void Distributed::findGates() {
  std::unordered_map<const void*, size_t> known;
  for (const auto& item : model_.named_parameters()) {
    if (!item.value().requires_grad()) continue;
    if (!item.value().is_contiguous()) {
      throw Error({Code::kInvalidArgument,
                   c10::str("'", item.key(), "' does not lie in one piece: use .contiguous()")});
    }
    if (!known.emplace(item.value().unsafeGetTensorImpl(), parameters_.size()).second) continue;
    parameters_.push_back({item.key(), item.value()});
    if (item.value().device().is_cpu()) continue;
    parameters_.back().isOnDevice = true;
    useDeviceOf(item.key(), item.value());
  }
  constexpr size_t kNone = static_cast<size_t>(-1);
  for (Parameter& parameter : parameters_) parameter.gate = kNone;

  // Every parameter gets the gate of its first reader in the order of registration, which is meant
  // to be that of forward. Without a gated reader it gets the last gate, which step() opens.
  for (const GatedModule* gated : gatedModulesIn(model_)) {
    for (const torch::nn::Module* module : gated->gates()) {
      const auto* inner = dynamic_cast<const GatedModule*>(module);
      if (inner != nullptr && inner != gated) continue;  // it has gates of its own
      auto& waits = gatesOf_[module];
      Gate gate;
      for (const torch::Tensor& tensor : module->parameters()) {
        const auto found = known.find(tensor.unsafeGetTensorImpl());
        if (found == known.end()) continue;
        Parameter& parameter = parameters_[found->second];
        if (parameter.gate == kNone) {
          parameter.gate = gates_.size();
          gate.parameters.push_back(found->second);
        }
        if (std::ranges::find(waits, parameter.gate) == waits.end())
          waits.push_back(parameter.gate);
      }
      if (!gate.parameters.empty()) gates_.push_back(std::move(gate));
    }
  }
  Gate rest;
  for (size_t p = 0; p < parameters_.size(); ++p) {
    if (parameters_[p].gate != kNone) continue;
    parameters_[p].gate = gates_.size();
    rest.parameters.push_back(p);
  }
  gates_.push_back(std::move(rest));
}

void Distributed::useDeviceOf(const std::string& name, const torch::Tensor& value) {
  if (device_ == nullptr) {
    device_ = std::make_unique<TorchDevice>(value.device());
  } else if (device_->name() != value.device().str()) {
    throw Error({Code::kInvalidArgument,
                 c10::str("'", name, "' is on ", value.device().str(), " and others are on ",
                          device_->name(), "; one accelerator per process is trained on")});
  }
}

// Sorts the parameters of each gate into the optimizer's groups, in its order and as often as it
// has each: a gate's share of a whole step.
void Distributed::sortIntoGroups() {
  std::unordered_map<const void*, size_t> gateOf;
  for (const Parameter& parameter : parameters_)
    gateOf[parameter.value.unsafeGetTensorImpl()] = parameter.gate;
  const auto& groups = optimizer_.param_groups();
  for (Gate& gate : gates_) gate.groups.resize(groups.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const torch::Tensor& tensor : groups[g].params()) {
      const auto found = gateOf.find(tensor.unsafeGetTensorImpl());
      if (found != gateOf.end()) gates_[found->second].groups[g].push_back(tensor);
    }
  }
}

void Distributed::openSession(Job& job, const std::string& name) {
  SessionOptions options;
  options.name = name;
  options.device = device_.get();
  for (const Parameter& parameter : parameters_) {
    options.model.tensors.push_back({parameter.name, static_cast<uint64_t>(parameter.value.numel()),
                                     dtypeOf(parameter.value, parameter.name)});
  }
  session_ = valueOrThrow(Session::open(job, std::move(options)));
}

void Distributed::broadcast(torch::Tensor tensor) {
  if (tensor.numel() == 0) return;
  torch::Tensor whole = tensor.detach().cpu().contiguous();
  throwIfError(session_->broadcast(Rank{0}, bytesOf(whole)));
  if (!whole.is_alias_of(tensor)) tensor.detach().copy_(whole);
}

void Distributed::broadcastBuffers() {
  check();
  whole("broadcastBuffers()", [this] {
    for (const torch::Tensor& buffer : model_.buffers()) broadcast(buffer);
  });
}

// Every call from outside begins here.
void Distributed::check() {
  // Autograd does not say that a backward pass has ended with an exception. It shows here: a pass
  // is said to run, but this thread runs no pass. If gradients have left by then, other ranks have
  // used them and this one cannot take them back.
  if (inBackward_ && torch::autograd::get_current_graph_task_id() < 0) {
    inBackward_ = false;
    if (roundHasLeft_) breakBy("backward() ended with an exception after it had sent gradients");
  }
  if (!broken_.empty()) throw Error({Code::kRefused, broken_});
}

void Distributed::breakBy(const std::string& what) {
  if (broken_.empty())
    broken_ =
        c10::str("this model is no longer good: ", what, "; start again from the last checkpoint");
}

// Runs work that an exception must not cut short.
template <typename Work>
void Distributed::whole(const std::string& doing, Work&& work) {
  try {
    work();
  } catch (const std::exception& error) {
    breakBy(c10::str(doing, " was cut short: ", error.what()));
    throw;
  }
}

void Distributed::refuseWhileOwed() {
  check();
  if (!owed_.empty()) throw Error({Code::kRefused, owed_});
}

TensorId Distributed::idOf(const Parameter& parameter) const {
  return TensorId{static_cast<uint32_t>(&parameter - parameters_.data())};
}

void Distributed::gradientIsThere(size_t index) {
  if (holdingBack_ > 0) return;
  const std::lock_guard lock(hooks_);
  Parameter& parameter = parameters_[index];
  if (gates_[parameter.gate].isClosed) {
    throw Error(
        {Code::kInvalidArgument,
         c10::str("'", parameter.name,
                  "' got a gradient, but its gate was still closed: the forward pass read its old "
                  "value. Read it inside its gated module, or call synchronize() after step()")});
  }
  if (inBackward_ && parameter.round == round_) {
    breakBy(c10::str("'", parameter.name,
                     "' got a second gradient in one backward(), after its first had been sent"));
    check();
  }
  if (!inBackward_) {
    inBackward_ = true;
    roundHasLeft_ = false;
    ++round_;
    torch::autograd::Engine::get_default_engine().queue_callback([this] { backwardEnds(); });
  }
  // A second backward adds to the mean of the first, for which only finishRound() may wait.
  if (parameter.isOnDevice && parameter.state == Gradient::kTravelling) return;
  handOver(parameter);
}

// With a device this runs on a thread of autograd's, which must not wait: step(), synchronize() and
// the next forward pass finish the round.
void Distributed::backwardEnds() {
  roundIsDue_ = true;
  inBackward_ = false;
  if (device_ == nullptr) finishRound();
}

// Hands over every parameter that is still missing in this round: every rank takes part with every
// parameter, so that no rank waits for a gradient that never comes. Goes on where an exception has
// stopped it.
void Distributed::finishRound() {
  if (!roundIsDue_) return;
  // An exception on the way, as from Ctrl-C, leaves the text behind, and refuseWhileOwed() shows
  // it to whoever goes on as if nothing had happened.
  owed_ =
      "backward() was interrupted, but its gradients are on their way: call step() or "
      "synchronize() next";
  for (auto parameter = parameters_.rbegin(); parameter != parameters_.rend(); ++parameter) {
    if (parameter->round == round_) continue;
    if (gates_[parameter->gate].isClosed) open(gates_[parameter->gate]);  // not read in this step
    // A parameter without a new gradient sends the mean of an earlier backward again.
    if (!parameter->value.grad().defined()) settle(*parameter);
    if (parameter->value.grad().defined()) {
      handOver(*parameter);
      continue;
    }
    parameter->round = round_;
    parameter->gradient =
        torch::empty_like(parameter->value, torch::TensorOptions().requires_grad(false));
    parameter->state = Gradient::kTravelling;
    sendAbsence(*parameter);
  }
  roundIsDue_ = false;
  owed_.clear();
}

void Distributed::sendAbsence(const Parameter& parameter) {
  throwIfError(parameter.isOnDevice
                   ? session_->gradientAbsent(
                         idOf(parameter),
                         {nullptr, TorchDevice::bytesOf(parameter.gradient), device_->mark()})
                   : session_->gradientAbsent(idOf(parameter), bytesOf(parameter.gradient),
                                              std::make_shared<torch::Tensor>(parameter.gradient)));
}

void Distributed::handOver(Parameter& parameter) {
  const torch::Tensor& made = parameter.value.grad();
  if (made.layout() != torch::kStrided || made.scalar_type() != parameter.value.scalar_type()) {
    throw Error(
        {Code::kInvalidArgument, c10::str("the gradient of '", parameter.name,
                                          "' is sparse or of another type than the parameter")});
  }
  // A second backward adds to the mean of the first.
  const bool isSecond = parameter.state == Gradient::kTravelling;
  if (isSecond && session_->algorithm() == "pipe") {
    throw Error(
        {Code::kInvalidArgument, c10::str("with algorithm pipe the gradient of '", parameter.name,
                                          "' is that of an earlier step, and a new one cannot be "
                                          "added: accumulate under NoSync")});
  }
  // The wait may be repeated, so nothing is changed before it. Afterwards an interruption would
  // leave a gradient that is half handed over, hence whole().
  await(parameter);
  whole("backward()", [&] {
    torch::Tensor gradient = std::exchange(parameter.value.mutable_grad(), torch::Tensor());
    if (isSecond) {
      settle(parameter);
      const torch::Tensor mean = std::exchange(parameter.value.mutable_grad(), torch::Tensor());
      if (mean.defined()) gradient.add_(mean);
    }
    parameter.round = round_;
    parameter.gradient = gradient.contiguous();
    parameter.state = Gradient::kTravelling;
    roundHasLeft_ = true;
    if (parameter.isOnDevice) {
      const auto bytes = TorchDevice::bytesOf(parameter.gradient);
      return throwIfError(
          session_->gradientReady(idOf(parameter), DeviceMemory{bytes, bytes, device_->mark()}));
    }
    const auto memory = bytesOf(parameter.gradient);
    throwIfError(session_->gradientReady(
        idOf(parameter), {memory, memory, std::make_shared<torch::Tensor>(parameter.gradient)}));
  });
}

// Waits for a gradient that is travelling. Changes nothing, so that it can be called again after an
// exception.
void Distributed::await(const Parameter& parameter) {
  if (parameter.state == Gradient::kTravelling) throwIfError(session_->wait(idOf(parameter)));
}

void Distributed::settle(Parameter& parameter) {
  await(parameter);
  if (parameter.state == Gradient::kPutAside) {
    parameter.value.mutable_grad() = std::exchange(parameter.gradient, torch::Tensor());
    parameter.state = Gradient::kMean;
  }
  if (parameter.state != Gradient::kTravelling) return;
  parameter.state = Gradient::kMean;
  const torch::Tensor mean = std::exchange(parameter.gradient, torch::Tensor());
  parameter.value.mutable_grad() = session_->isEmpty(idOf(parameter)) ? torch::Tensor() : mean;
}

void Distributed::step() {
  check();
  finishRound();
  if (optimizer_.param_groups().size() != gates_.front().groups.size()) {
    throw Error({Code::kInvalidArgument,
                 "the optimizer got another parameter group after sluice had taken it over; give "
                 "it all groups before"});
  }
  owed_ = "step() was interrupted, but the other ranks take it: call it again before anything else";
  // A step has two parts. The first is taken once, even if step() is called again after an
  // interruption: gates close, and the optimizer's settings are frozen, since a scheduler may
  // change them before a gate opens. The second opens the gate that nobody else would open.
  if (!stepIsTaken_) {
    for (Gate& gate : gates_) {
      if (gate.isClosed) open(gate);  // step() twice without a backward
    }
    whole("step()", [this] {
      frozen_.clear();
      for (const auto& group : optimizer_.param_groups())
        frozen_.push_back(group.options().clone());
      for (Gate& gate : gates_) gate.isClosed = true;
      for (Parameter& parameter : parameters_) {  // zero_grad() comes before the gates open
        if (parameter.state == Gradient::kTravelling) continue;
        parameter.gradient = std::exchange(parameter.value.mutable_grad(), torch::Tensor());
        parameter.state = Gradient::kPutAside;
      }
    });
    stepIsTaken_ = true;
  }
  if (gates_.back().isClosed) open(gates_.back());
  stepIsTaken_ = false;
  owed_.clear();
}

void Distributed::synchronize() {
  check();
  finishRound();
  for (Gate& gate : gates_) {
    if (gate.isClosed) open(gate);
  }
  for (Parameter& parameter : parameters_) settle(parameter);
}

void Distributed::drain() {
  if (stepIsTaken_) step();  // ends a drain() that was interrupted
  synchronize();
  // Each round of the loop is a step without gradients of its own, in which every rank takes
  // the oldest delayed mean. All ranks know the same number of them, so all make as many steps.
  for (size_t left = valueOrThrow(session_->delayed()); left > 0; --left) {
    whole("drain()", [this] {
      for (Parameter& parameter : parameters_) {
        parameter.gradient =
            torch::empty_like(parameter.value, torch::TensorOptions().requires_grad(false));
        parameter.state = Gradient::kTravelling;
        throwIfError(
            parameter.isOnDevice
                ? session_->handOutDelayed(
                      idOf(parameter),
                      {nullptr, TorchDevice::bytesOf(parameter.gradient), device_->mark()})
                : session_->handOutDelayed(idOf(parameter), bytesOf(parameter.gradient),
                                           std::make_shared<torch::Tensor>(parameter.gradient)));
      }
    });
    step();
    synchronize();
  }
}

void Distributed::leave() {
  // Others would wait for a rank that leaves in the middle of a step, so they are told why.
  if (!broken_.empty() || !owed_.empty()) {
    const std::string why = broken_.empty() ? owed_ : broken_;
    std::exchange(session_, nullptr)->abandon(why);
    throw Error({Code::kRefused, why});
  }
  synchronize();
  const auto session = std::move(session_);
  throwIfError(session->leave());
}

void Distributed::beforeReading(const torch::nn::Module& module) {
  const auto waits = gatesOf_.find(&module);
  if (waits == gatesOf_.end()) return;
  refuseWhileOwed();
  finishRound();
  // The gates are opened one after the other, in the order in which forward reads: the wait for
  // a later layer's gradient does not hold up an earlier one.
  for (const size_t gate : waits->second) {
    if (gates_[gate].isClosed) open(gates_[gate]);
    follow(gates_[gate]);
  }
}

// Makes the current stream wait for the gate's last update, if another stream made it.
void Distributed::follow(const Gate& gate) {
  if (gate.update == nullptr || *gate.updateStream == device_->currentStream()) return;
  throwIfError(device_->makeStreamWait(*gate.update));
}

void Distributed::open(Gate& gate) {
  for (const size_t p : gate.parameters) await(parameters_[p]);
  whole("the optimizer's step", [&] {
    for (const size_t p : gate.parameters) settle(parameters_[p]);
    runOptimizer(gate);
    for (const size_t p : gate.parameters) {
      parameters_[p].value.mutable_grad() = torch::Tensor();
      parameters_[p].state = Gradient::kLocal;
    }
    gate.isClosed = false;
    if (device_ == nullptr) return;
    gate.updateStream = device_->currentStream();
    gate.update = device_->mark();
  });
}

// Runs the optimizer on the parameters of this gate only, with its settings as they were at step().
void Distributed::runOptimizer(const Gate& gate) {
  const c10::InferenceMode inference(false);
  const torch::NoGradGuard noGrad;
  // The optimizer only knows whole steps. For one call it is shown this gate's parameters and the
  // frozen settings; user code sees its own optimizer at all other times, also after an exception.
  auto& groups = optimizer_.param_groups();
  std::vector<std::vector<torch::Tensor>> all;
  std::vector<std::unique_ptr<torch::optim::OptimizerOptions>> later;
  for (size_t g = 0; g < groups.size(); ++g) {
    all.push_back(std::exchange(groups[g].params(), gate.groups[g]));
    later.push_back(groups[g].options().clone());
    groups[g].set_options(frozen_[g]->clone());
  }
  const auto putBack = [&] {
    for (size_t g = 0; g < groups.size(); ++g) {
      groups[g].params() = std::move(all[g]);
      groups[g].set_options(std::move(later[g]));
    }
  };
  try {
    optimizer_.step();
  } catch (...) {
    putBack();
    throw;
  }
  putBack();
}

}  // namespace sluice
