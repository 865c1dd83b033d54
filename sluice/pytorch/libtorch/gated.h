// Modules that wait, before they run, for the parameters they are about to read. LibTorch has no forward
// hooks, so the gate has to be part of the module:
//
//   GatedSequential net(nn::Conv2d(1, 16, 3), nn::ReLU(), ...);   // each module in it has a gate of its own
//   Gated<nn::Linear> head(128, 10);                              // any other module
//
// Names of parameters are those of the module without a gate. Until a Distributed (distributed.h) trains the
// model nothing waits. Called from the training thread.
#pragma once

#include <memory>
#include <optional>
#include <ostream>
#include <type_traits>
#include <utility>
#include <vector>

#include <torch/torch.h>

namespace sluice::pytorch {

// Who opens gates.
class Gatekeeper {
 public:
  virtual ~Gatekeeper() = default;

  // `module` is about to read its parameters: they are up to date when this returns.
  virtual void beforeReading(const torch::nn::Module& module) = 0;
};

// The place in a module where it waits.
class Door final {
 public:
  // Null: nobody trains the module. REQUIRES: the keeper outlives the door, or is taken away before.
  void setKeeper(Gatekeeper* keeper) { keeper_ = keeper; }
  void pass(const torch::nn::Module& module) const {
    if (keeper_ != nullptr) keeper_->beforeReading(module);
  }

 private:
  Gatekeeper* keeper_ = nullptr;
};

class GatedModule {
 public:
  virtual ~GatedModule() = default;
  virtual Door& door() = 0;

  // The modules for each of which it passes its door, in the order of the forward pass.
  virtual std::vector<const torch::nn::Module*> gates() const = 0;
};

template <typename Impl, typename Forward = decltype(&Impl::forward)>
class GatedImpl;

// With forward() spelled out, which is what Sequential and AnyModule ask of a module.
template <typename Impl, typename Output, typename Owner, typename... Inputs>
class GatedImpl<Impl, Output (Owner::*)(Inputs...)> final : public Impl, public GatedModule {
 public:
  using Impl::Impl;

  Output forward(Inputs... inputs) {
    door_.pass(*this);
    return Impl::forward(std::forward<Inputs>(inputs)...);
  }

  void save(torch::serialize::OutputArchive& archive) const override {
    door_.pass(*this);
    Impl::save(archive);
  }

  // A copy has no gate: nobody trains it.
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override {
    door_.pass(*this);
    return Impl::clone(device);
  }

  Door& door() override { return door_; }
  std::vector<const torch::nn::Module*> gates() const override { return {this}; }

 private:
  Door door_;
};

// The class behind a holder such as nn::Linear; of a class that has no holder, itself.
template <typename Module, typename = void>
struct Contained {
  using Type = Module;
};
template <typename Module>
struct Contained<Module, std::void_t<typename Module::ContainedType>> {
  using Type = typename Module::ContainedType;
};

// Made and used like the module itself. Its forward() must be one function, not several.
template <typename Module>
class Gated final : public torch::nn::ModuleHolder<GatedImpl<typename Contained<Module>::Type>> {
 public:
  using torch::nn::ModuleHolder<GatedImpl<typename Contained<Module>::Type>>::ModuleHolder;
};

class GatedSequentialImpl final : public torch::nn::SequentialImpl, public GatedModule {
 public:
  using SequentialImpl::SequentialImpl;

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

  void save(torch::serialize::OutputArchive& archive) const override {
    passAll();
    SequentialImpl::save(archive);
  }
  std::shared_ptr<Module> clone(const std::optional<torch::Device>& device = std::nullopt) const override {
    passAll();
    return SequentialImpl::clone(device);
  }

  void pretty_print(std::ostream& stream) const override { stream << "sluice::pytorch::GatedSequential"; }

  Door& door() override { return door_; }
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

class GatedSequential final : public torch::nn::ModuleHolder<GatedSequentialImpl> {
 public:
  using torch::nn::ModuleHolder<GatedSequentialImpl>::ModuleHolder;
  GatedSequential() = default;
  GatedSequential(std::initializer_list<torch::nn::NamedAnyModule> modules)
      : ModuleHolder(std::make_shared<GatedSequentialImpl>(modules)) {}
};

}  // namespace sluice::pytorch
