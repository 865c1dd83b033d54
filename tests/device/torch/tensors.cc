#include <tests/device/torch/tensors.h>

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>

#include <tests/device/torch/allocators.h>

namespace sluice::pretend {

at::Tensor hostView(const at::Tensor& tensor) {
  const c10::Storage& storage = tensor.storage();
  void* data = storage.mutable_data();
  if (data != nullptr && isOnDevice(tensor)) {
    data = machine().reach(static_cast<std::byte*>(data));
  }
  c10::Storage bytes(c10::Storage::use_byte_size_t(), storage.nbytes(),
                     c10::DataPtr(data, c10::DeviceType::CPU), nullptr, false);
  at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(
      std::move(bytes), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(),
                                                    tensor.storage_offset());
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    view.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return view;
}

at::Tensor deviceView(const at::Tensor& base, const at::Tensor& view) {
  at::Tensor result = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(base.storage()), base.key_set(), view.dtype());
  result.unsafeGetTensorImpl()->set_sizes_and_strides(view.sizes(), view.strides(),
                                                      view.storage_offset());
  return result;
}

at::Tensor upload(const at::Tensor& result, c10::DeviceIndex device) {
  const at::Tensor dense = result.is_non_overlapping_and_dense() ? result : result.contiguous();
  const c10::DeviceGuard guard(c10::Device(kType, device));
  at::Tensor made = at::detail::empty_strided_generic(
      dense.sizes(), dense.strides(), &deviceAllocator(),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), dense.scalar_type());
  uploadTo(made, dense);
  return made;
}

void uploadTo(const at::Tensor& target, const at::Tensor& result) {
  if (target.numel() == 0) return;
  machine().launch(currentStream(target.device().index()),
                   [to = hostView(target), result] {
                     const at::AutoDispatchBelowADInplaceOrView guard;
                     to.copy_(result);
                   },
                   {useOf(target, true)});
}

void resizeStorage(c10::StorageImpl* storage, size_t bytes) {
  const c10::DeviceGuard guard(storage->device());
  c10::DataPtr fresh = deviceAllocator().allocate(bytes);
  const size_t kept = std::min(bytes, storage->nbytes());
  if (kept > 0) {
    const StreamIndex stream = currentStream(storage->device().index());
    void* const former = storage->mutable_data();
    machine().copy(stream, {Direction::kOnDevice, fresh.get(), former, kept, false, {}});
    machine().recordStream(former, stream);
  }
  storage->set_data_ptr_noswap(std::move(fresh));
  storage->set_nbytes(bytes);
}

Use useOf(const at::Tensor& tensor, bool writes) {
  return {reinterpret_cast<uintptr_t>(tensor.storage().data()), writes};
}

int threadsForKernels() {
  return at::get_num_threads();
}

void useThreads(int threads) {
  thread_local int used = 0;
  if (used != threads) at::set_num_threads(threads);
  used = threads;
}

}  // namespace sluice::pretend
