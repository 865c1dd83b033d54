// The accelerators of PyTorch as a Device: CUDA, ROCm, XPU and any device that is registered with
// it. Only interfaces that all of them share are used, so there is one source for all.
//
// The device has a stream of its own for each direction of copies. An error of PyTorch becomes a
// Status that names the device.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstddef>
#include <exception>
#include <memory>
#include <span>
#include <string>

#include <sluice/device.h>

namespace sluice {

namespace detail {

// Returns what `call` returns, or an exception of PyTorch as an error.
template <typename Call>
auto withoutExceptions(const c10::Device& device, Call&& call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::exception& exception) {
    const std::string text = exception.what();
    return Status(Code::kInternal,
                  device.str() + " has failed: " + text.substr(0, text.find('\n')));
  }
}

// An event that is recorded once, when the mark is made.
class TorchMark final : public DeviceMark {
 public:
  // Makes a mark in the work of this stream.
  explicit TorchMark(const c10::Stream& stream) : event_(stream.device_type()) {
    event_.record(stream);
  }

  // Asks without waiting, as DeviceMark says. Torch reports a broken device by an exception, which
  // becomes an error here.
  Result<bool> isDone() const override {
    return withoutExceptions(event_.device(), [&]() -> Result<bool> { return event_.query(); });
  }

  // Makes the stream wait for the mark.
  void block(const c10::Stream& stream) const { event_.block(stream); }

 private:
  c10::Event event_;
};

// Memory of a tensor, which shares nothing with the user's tensor but its storage.
class TorchBytes final : public DeviceBytes {
 public:
  // Refers to the memory of a tensor that fills one piece of it.
  explicit TorchBytes(const at::Tensor& tensor)
      : storage_(tensor.storage()),
        begin_(static_cast<size_t>(tensor.storage_offset()) * tensor.element_size()),
        size_(tensor.nbytes()) {}

  // As DeviceBytes.
  size_t size() const override { return size_; }
  // Returns a part of them as a tensor. The thread that copies makes it, not the one that trains.
  at::Tensor part(size_t offset, size_t count) const {
    auto bytes = at::empty({0}, at::TensorOptions(at::kByte).device(storage_.device()));
    return bytes.set_(storage_, static_cast<int64_t>(begin_ + offset),
                      {static_cast<int64_t>(count)}, {1});
  }

 private:
  const c10::Storage storage_;
  const size_t begin_;
  const size_t size_;
};

// Pinned memory of PyTorch's allocator.
class TorchPinned final : public PinnedBytes {
 public:
  // Allocates so many bytes.
  explicit TorchPinned(size_t bytes)
      : memory_(at::empty({static_cast<int64_t>(bytes)},
                          at::TensorOptions(at::kByte).pinned_memory(true))) {}

  // As PinnedBytes.
  std::span<std::byte> bytes() override {
    return {reinterpret_cast<std::byte*>(memory_.data_ptr()), static_cast<size_t>(memory_.numel())};
  }
  // Returns the first bytes of them.
  at::Tensor part(size_t count) const { return memory_.narrow(0, 0, static_cast<int64_t>(count)); }

 private:
  at::Tensor memory_;
};

}  // namespace detail

// One accelerator of PyTorch.
class TorchDevice final : public Device {
 public:
  // Makes two streams on the device.
  explicit TorchDevice(const c10::Device& device)
      : device_(prepared(device)),
        guard_(device.type()),
        out_(guard_.getNewStream(device_)),
        in_(guard_.getNewStream(device_)) {}

  // Returns the memory of a tensor on this device. It is kept from reuse while the result lives.
  // REQUIRES: the tensor fills one piece of memory.
  static std::shared_ptr<DeviceBytes> bytesOf(const at::Tensor& tensor) {
    return std::make_shared<detail::TorchBytes>(tensor);
  }

  // Returns a mark in the work of the stream that is current on the calling thread.
  std::shared_ptr<DeviceMark> mark() const {
    return std::make_shared<detail::TorchMark>(currentStream());
  }

  // The stream on which results are copied to the device, so that they wait for no kernel of the
  // model.
  c10::Stream resultStream() const { return in_; }

  // Returns the stream that is current on the calling thread.
  c10::Stream currentStream() const { return guard_.getStream(device_); }

  // As Device.
  std::string name() const override { return device_.str(); }

  // As Device.
  Result<std::unique_ptr<PinnedBytes>> allocatePinned(size_t bytes) override {
    return detail::withoutExceptions(device_, [&]() -> Result<std::unique_ptr<PinnedBytes>> {
      return std::unique_ptr<PinnedBytes>(std::make_unique<detail::TorchPinned>(bytes));
    });
  }

  // As Device.
  Result<std::shared_ptr<DeviceMark>> copyToHost(const DeviceBytes& from, size_t offset,
                                                 PinnedBytes& to, size_t count,
                                                 const DeviceMark* after) override {
    return copy(static_cast<detail::TorchPinned&>(to).part(count),
                static_cast<const detail::TorchBytes&>(from).part(offset, count), out_, after);
  }

  // As Device.
  Result<std::shared_ptr<DeviceMark>> copyToDevice(PinnedBytes& from, DeviceBytes& to,
                                                   size_t offset, size_t count,
                                                   const DeviceMark* after) override {
    return copy(static_cast<detail::TorchBytes&>(to).part(offset, count),
                static_cast<detail::TorchPinned&>(from).part(count), in_, after);
  }

  // As Device.
  Status makeStreamWait(const DeviceMark& mark) override {
    return detail::withoutExceptions(device_, [&]() -> Status {
      static_cast<const detail::TorchMark&>(mark).block(currentStream());
      return {};
    });
  }

 private:
  static c10::Device prepared(const c10::Device& device) {
    at::globalContext().lazyInitDevice(device.type());  // or its memory would not count as pinned
    if (device.has_index()) return device;
    return c10::impl::VirtualGuardImpl(device.type()).getDevice();
  }

  Result<std::shared_ptr<DeviceMark>> copy(const at::Tensor& to, const at::Tensor& from,
                                           const c10::Stream& stream, const DeviceMark* after) {
    return detail::withoutExceptions(device_, [&]() -> Result<std::shared_ptr<DeviceMark>> {
      const c10::StreamGuard streamGuard(stream);
      if (after != nullptr) static_cast<const detail::TorchMark*>(after)->block(stream);
      to.copy_(from, /*non_blocking=*/true);
      return std::shared_ptr<DeviceMark>(std::make_shared<detail::TorchMark>(stream));
    });
  }

  const c10::Device device_;
  const c10::impl::VirtualGuardImpl guard_;
  const c10::Stream out_;
  const c10::Stream in_;
};

}  // namespace sluice
