// All other operators run the CPU's kernels on the second mapping of the device's memory, in one of
// three ways:
//   queued   Operators whose results are all arguments that they write (in place, out=) run on the
//            thread of the current stream. Torch turns most others into out= first.
//   views    give tensors over the same storage. They never wait: a view that waits would hide
//            every missing wait before it.
//   the rest wait for the current stream, as nobody knows the sizes of their results before, and
//            run on the calling thread. Their results reach the device's memory when the stream
//            comes to them.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <string>

#include <tests/device/torch/tensors.h>

namespace sluice::pretend {

namespace {

using Stack = torch::jit::Stack;

// A tensor of the device among the arguments, and the CPU tensor that the kernel gets instead.
struct Argument {
  at::Tensor tensor;
  at::Tensor host;
  bool isWritten;
};

bool writes(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

bool isViewOperator(const c10::FunctionSchema& schema) {
  return std::ranges::any_of(schema.returns(), [](const c10::Argument& result) {
    return result.alias_info() != nullptr && !result.alias_info()->isWrite();
  });
}

// Returns the number of the argument that is also this result.
size_t argumentOf(const c10::FunctionSchema& schema, const c10::Argument& result) {
  const auto& arguments = schema.arguments();
  const auto found = std::ranges::find_if(arguments, [&](const c10::Argument& argument) {
    return argument.alias_info() != nullptr &&
           argument.alias_info()->beforeSets() == result.alias_info()->beforeSets();
  });
  TORCH_INTERNAL_ASSERT(found != arguments.end());
  return static_cast<size_t>(found - arguments.begin());
}

bool takesHostTensors(const c10::FunctionSchema& schema) {
  return schema.name().find("index") != std::string::npos;
}

// One call of an operator.
class Call final {
 public:
  Call(const c10::OperatorHandle& op, Stack* stack)
      : op_(op),
        schema_(op.schema()),
        stack_(*stack),
        first_(stack->size() - op.schema().arguments().size()) {
    for (size_t i = first_; i < stack_.size(); ++i) {
      hosts_.push_back(convert(stack_[i], schema_.arguments()[i - first_]));
    }
    checkDevices();
  }

  void run() {
    if (isViewOperator(schema_)) {
      runView();
    } else if (canBeQueued()) {
      queue();
    } else {
      runHere();
    }
  }

 private:
  c10::IValue convert(const c10::IValue& value, const c10::Argument& argument) {
    if (value.isTensor()) return convert(value.toTensor(), writes(argument));
    if (value.isTensorList()) {
      hasLists_ = true;
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) {
        list.push_back(convert(tensor, writes(argument)));
      }
      return list;
    }
    if (value.isOptionalTensorList()) {
      hasLists_ = true;
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
        list.push_back(tensor ? std::optional(convert(*tensor, false)) : std::nullopt);
      }
      return list;
    }
    if (value.isDevice() && value.toDevice().type() == kType) {
      const c10::DeviceIndex index = value.toDevice().index();
      noteDevice(index < 0 ? currentDevice() : index);
      return c10::Device(c10::DeviceType::CPU);
    }
    if (argument.type()->str().find("Generator") != std::string::npos) hasGenerator_ = true;
    return value;
  }

  at::Tensor convert(const at::Tensor& tensor, bool isWritten) {
    if (!tensor.defined()) return tensor;
    if (!isOnDevice(tensor)) {
      hostTensors_.push_back(tensor);
      return tensor;
    }
    noteDevice(tensor.device().index());
    // An operator may make an empty result as large as it needs.
    const bool isToGrow = isWritten && tensor.numel() == 0;
    hasEmptyResults_ = hasEmptyResults_ || isToGrow;
    at::Tensor host =
        isToGrow ? at::empty(tensor.sizes(), tensor.options().device(c10::kCPU)) : hostView(tensor);
    arguments_.push_back({tensor, host, isWritten});
    return host;
  }

  void noteDevice(c10::DeviceIndex device) {
    TORCH_CHECK(device_ < 0 || device_ == device, schema_.name(),
                ": Expected all tensors to be on the same device, but found pretend:",
                static_cast<int>(device_), " and pretend:", static_cast<int>(device));
    device_ = device;
  }

  void checkDevices() {
    if (device_ < 0) device_ = currentDevice();
    if (arguments_.empty() || takesHostTensors(schema_)) return;
    for (const at::Tensor& tensor : hostTensors_) {
      TORCH_CHECK(tensor.dim() == 0, schema_.name(),
                  ": Expected all tensors to be on the same device, but found pretend:",
                  static_cast<int>(device_), " and ", tensor.device());
    }
  }

  bool canBeQueued() const {
    return !hasLists_ && !hasGenerator_ && !hasEmptyResults_ && !schema_.returns().empty() &&
           std::ranges::all_of(schema_.returns(), writes);
  }

  static void callOnHost(const c10::OperatorHandle& op, Stack& stack) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  }

  void replaceStack(std::vector<c10::IValue> results) {
    stack_.resize(first_);
    for (c10::IValue& result : results) stack_.push_back(std::move(result));
  }

  void queue() {
    std::vector<c10::IValue> results;
    for (const c10::Argument& result : schema_.returns()) {
      results.push_back(stack_[first_ + argumentOf(schema_, result)]);
    }
    // The host may change its tensors after the call.
    for (c10::IValue& host : hosts_) {
      if (host.isTensor() && isHostTensor(host.toTensor())) {
        const at::Tensor given = host.toTensor();
        at::Tensor clone = given.detach().clone();
        if (given.unsafeGetTensorImpl()->is_wrapped_number()) {
          clone.unsafeGetTensorImpl()->set_wrapped_number(true);
        }
        host = clone;
      }
    }
    std::vector<Use> uses;
    for (const Argument& argument : arguments_) {
      uses.push_back(useOf(argument.tensor, argument.isWritten));
    }
    machine().launch(
        currentStream(device_),
        [op = op_, stack = std::move(hosts_), threads = threadsForKernels()]() mutable {
          useThreads(threads);
          callOnHost(op, stack);
        },
        uses);
    replaceStack(std::move(results));
  }

  bool isHostTensor(const at::Tensor& tensor) const {
    return tensor.defined() && std::ranges::any_of(hostTensors_, [&](const at::Tensor& other) {
             return other.is_same(tensor);
           });
  }

  void runView() {
    const at::Tensor base = baseOfViews();
    callOnHost(op_, hosts_);
    std::vector<c10::IValue> results;
    for (const c10::IValue& result : hosts_) {
      if (result.isTensor()) {
        results.emplace_back(deviceView(base, result.toTensor()));
        continue;
      }
      c10::List<at::Tensor> views;
      for (const at::Tensor& view : result.toTensorVector()) {
        views.push_back(deviceView(base, view));
      }
      results.emplace_back(std::move(views));
    }
    replaceStack(std::move(results));
  }

  at::Tensor baseOfViews() const {
    for (const c10::Argument& result : schema_.returns()) {
      if (result.alias_info() != nullptr) {
        return stack_[first_ + argumentOf(schema_, result)].toTensor();
      }
    }
    return {};
  }

  void runHere() {
    machine().drain(currentStream(device_));
    callOnHost(op_, hosts_);
    for (const Argument& argument : arguments_) {
      if (!argument.isWritten || argument.host.sizes() == argument.tensor.sizes()) continue;
      argument.tensor.resize_(argument.host.sizes());
      uploadTo(argument.tensor, argument.host);
    }
    std::vector<c10::IValue> results;
    for (const c10::IValue& result : hosts_) results.push_back(toDevice(result));
    replaceStack(std::move(results));
  }

  c10::IValue toDevice(const c10::IValue& result) const {
    if (result.isTensor()) return toDevice(result.toTensor());
    if (!result.isTensorList()) return result;
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : result.toTensorVector()) list.push_back(toDevice(tensor));
    return list;
  }

  at::Tensor toDevice(const at::Tensor& result) const {
    if (!result.defined() || isHostTensor(result)) return result;
    for (const Argument& argument : arguments_) {
      if (argument.host.is_same(result)) return argument.tensor;
    }
    return upload(result, device_);
  }

  const c10::OperatorHandle& op_;
  const c10::FunctionSchema& schema_;
  Stack& stack_;
  const size_t first_;  // of the arguments on the stack
  Stack hosts_;         // the arguments for the CPU's kernel; then its results
  std::vector<Argument> arguments_;
  std::vector<at::Tensor> hostTensors_;
  c10::DeviceIndex device_ = -1;
  bool hasLists_ = false;
  bool hasGenerator_ = false;
  bool hasEmptyResults_ = false;
};

void fallback(const c10::OperatorHandle& op, Stack* stack) {
  Call(op, stack).run();
}

}  // namespace

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

// Torch has general kernels for these, which would be preferred and give other bits.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  for (const char* name : {"native_layer_norm", "native_layer_norm_backward", "native_group_norm",
                           "native_group_norm_backward"}) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&fallback>());
  }
}

// Autocast leaves the operators of this device as they are.
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}

}  // namespace sluice::pretend
