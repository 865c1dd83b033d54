// Operators that the fallback (fallback.cc) cannot give to the CPU: those that make tensors, move
// bytes or change storages.
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <tests/device/torch/allocators.h>
#include <tests/device/torch/tensors.h>

namespace sluice::pretend {

namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

c10::ScalarType typeOr(std::optional<c10::ScalarType> type) {
  return type.value_or(c10::get_default_dtype_as_scalartype());
}

at::Tensor empty(c10::IntArrayRef size, std::optional<c10::ScalarType> type,
                 std::optional<c10::Layout> /*layout*/, std::optional<c10::Device> device,
                 std::optional<bool> pinned, std::optional<c10::MemoryFormat> format) {
  TORCH_CHECK(!pinned.value_or(false), "Only memory of the CPU can be pinned");
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(size, &deviceAllocator(), kKeys, typeOr(type), format);
}

at::Tensor emptyStrided(c10::IntArrayRef size, c10::IntArrayRef strides,
                        std::optional<c10::ScalarType> type, std::optional<c10::Layout> /*layout*/,
                        std::optional<c10::Device> device, std::optional<bool> pinned) {
  TORCH_CHECK(!pinned.value_or(false), "Only memory of the CPU can be pinned");
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(size, strides, &deviceAllocator(), kKeys, typeOr(type));
}

// Makes the stream wait for the work of another one.
void follow(StreamIndex stream, StreamIndex other) {
  Event event;
  machine().record(other, event);
  machine().wait(stream, event);
}

at::Tensor copyFrom(const at::Tensor& from, const at::Tensor& to, bool isNonBlocking) {
  if (to.numel() == 0) return to;
  Copy copy;
  copy.direction = !isOnDevice(to)     ? Direction::kToHost
                   : !isOnDevice(from) ? Direction::kToDevice
                                       : Direction::kOnDevice;
  copy.to = to.mutable_data_ptr();
  copy.from = from.const_data_ptr();
  copy.bytes = to.nbytes();
  copy.isBlocking = !isNonBlocking && copy.direction != Direction::kOnDevice;
  const bool isPlain = from.dtype() == to.dtype() && from.sizes() == to.sizes() &&
                       from.strides() == to.strides() && from.is_non_overlapping_and_dense();
  if (!isPlain) {
    copy.run = [target = hostView(to), source = hostView(from), threads = threadsForKernels()] {
      const at::AutoDispatchBelowADInplaceOrView guard;
      useThreads(threads);
      target.copy_(source);
    };
  }
  const c10::DeviceIndex device = (isOnDevice(from) ? from : to).device().index();
  const StreamIndex stream = currentStream(device);
  if (copy.direction == Direction::kOnDevice && from.device() != to.device()) {
    const StreamIndex other = currentStream(to.device().index());
    follow(stream, other);
    machine().copy(stream, std::move(copy));
    follow(other, stream);
  } else {
    machine().copy(stream, std::move(copy));
  }
  return to;
}

const at::Tensor& resize(const at::Tensor& self, c10::IntArrayRef size,
                         std::optional<c10::MemoryFormat> format) {
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(size);
  if (format) impl->empty_tensor_restride(*format);
  const size_t bytes =
      (static_cast<size_t>(self.storage_offset()) + static_cast<size_t>(self.numel())) *
      self.itemsize();
  if (bytes > self.storage().nbytes()) {
    resizeStorage(self.storage().unsafeGetStorageImpl(), bytes);
  }
  return self;
}

at::Tensor copyFromAndResize(const at::Tensor& from, const at::Tensor& to) {
  if (from.sizes() != to.sizes()) to.resize_(from.sizes());
  return copyFrom(from, to, false);
}

at::Tensor& setStorageAndSizes(at::Tensor& self, c10::Storage storage, int64_t offset,
                               c10::IntArrayRef size, c10::IntArrayRef strides) {
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(storage));
  if (strides.empty() && !size.empty()) {
    impl->set_sizes_contiguous(size);
    impl->set_storage_offset(offset);
  } else {
    impl->set_sizes_and_strides(size, strides, offset);
  }
  return self;
}

at::Tensor& setStorage(at::Tensor& self, c10::Storage storage) {
  const auto count = static_cast<int64_t>(storage.nbytes() / self.itemsize());
  return setStorageAndSizes(self, std::move(storage), 0, {count}, {});
}

at::Tensor& setTensor(at::Tensor& self, const at::Tensor& source) {
  return setStorageAndSizes(self, source.storage(), source.storage_offset(), source.sizes(),
                            source.strides());
}

at::Tensor& setEmpty(at::Tensor& self) {
  const c10::DeviceGuard guard(self.device());
  c10::Storage storage(c10::Storage::use_byte_size_t(), 0, deviceAllocator().allocate(0),
                       &deviceAllocator(), true);
  return setStorageAndSizes(self, std::move(storage), 0, {0}, {});
}

// Says whether a tensor may become the other in place, as Module::to() makes it do.
bool canBecome(const at::Tensor& self, const at::Tensor& from) {
  const auto isDense = [](const at::Tensor& tensor) {
    return tensor.layout() == at::kStrided && (tensor.is_cpu() || isOnDevice(tensor));
  };
  return isDense(self) && isDense(from);
}

void recordStream(at::Tensor& self, c10::Stream stream) {
  machine().recordStream(self.storage().data(), indexOf(stream));
}

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias, c10::IntArrayRef stride,
                       c10::IntArrayRef padding, c10::IntArrayRef dilation, bool isTransposed,
                       c10::IntArrayRef outputPadding, int64_t groups) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  machine().drain(currentStream(input.device().index()));
  const bool hasBias = bias && bias->defined();
  return upload(at::convolution(hostView(input), hostView(weight),
                                hasBias ? std::optional(hostView(*bias)) : std::nullopt, stride,
                                padding, dilation, isTransposed, outputPadding, groups),
                input.device().index());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolutionBackward(
    const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight,
    c10::IntArrayRef stride, c10::IntArrayRef padding, c10::IntArrayRef dilation, bool isTransposed,
    c10::IntArrayRef outputPadding, int64_t groups, std::array<bool, 3> mask) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const c10::DeviceIndex device = input.device().index();
  machine().drain(currentStream(device));
  const int64_t outputs = isTransposed ? weight.size(1) * groups : weight.size(0);
  const std::array<int64_t, 1> biasSize{outputs};
  at::OptionalIntArrayRef biasSizes;
  if (mask[2]) biasSizes = c10::IntArrayRef(biasSize);
  auto [toInput, toWeight, toBias] = at::convolution_backward(
      hostView(gradient), hostView(input), hostView(weight), biasSizes, stride, padding, dilation,
      isTransposed, outputPadding, groups, mask);
  const auto uploaded = [device](const at::Tensor& result) {
    return result.defined() ? upload(result, device) : at::Tensor();
  };
  return {uploaded(toInput), uploaded(toWeight), uploaded(toBias)};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &emptyStrided);
  library.impl("_copy_from", &copyFrom);
  library.impl("_copy_from_and_resize", &copyFromAndResize);
  library.impl("resize_", &resize);
  library.impl("set_.source_Storage_storage_offset", &setStorageAndSizes);
  library.impl("set_.source_Storage", &setStorage);
  library.impl("set_.source_Tensor", &setTensor);
  library.impl("set_", &setEmpty);
  library.impl("_has_compatible_shallow_copy_type", &canBecome);
  library.impl("record_stream", &recordStream);
  library.impl("convolution_overrideable", &convolution);
  library.impl("convolution_backward_overrideable", &convolutionBackward);
}

}  // namespace sluice::pretend
