// A pretend device (tests/device/runtime) as a Device, for tests.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <sluice/device.h>

#include <tests/device/runtime/machine.h>

namespace sluice::staging::testing {

class PretendMark final : public DeviceMark {
 public:
  PretendMark(pretend::Machine& machine, pretend::StreamIndex stream) : machine_(machine) {
    machine_.record(stream, event_);
  }
  Result<bool> isDone() const override { return machine_.isDone(event_); }
  void block(pretend::StreamIndex stream) const { machine_.wait(stream, event_); }
  void synchronize() const { machine_.synchronize(event_); }

 private:
  pretend::Machine& machine_;
  pretend::Event event_;
};

class PretendBytes final : public DeviceBytes {
 public:
  // Memory for work on this stream.
  PretendBytes(pretend::Machine& machine, pretend::StreamIndex stream, size_t bytes)
      : machine_(machine),
        stream_(stream),
        address_(static_cast<std::byte*>(machine.allocate(0, bytes, stream))),
        bytes_(bytes) {}
  ~PretendBytes() override { machine_.free(address_); }

  size_t size() const override { return bytes_; }
  std::byte* address() const { return address_; }
  pretend::StreamIndex stream() const { return stream_; }

 private:
  pretend::Machine& machine_;
  const pretend::StreamIndex stream_;
  std::byte* const address_;
  const size_t bytes_;
};

class PretendPinned final : public PinnedBytes {
 public:
  PretendPinned(pretend::Machine& machine, size_t bytes)
      : machine_(machine),
        address_(static_cast<std::byte*>(machine.allocatePinned(bytes))),
        bytes_(bytes) {}
  ~PretendPinned() override { machine_.freePinned(address_); }

  std::span<std::byte> bytes() override { return {address_, bytes_}; }

 private:
  pretend::Machine& machine_;
  std::byte* const address_;
  const size_t bytes_;
};

class PretendDevice final : public Device {
 public:
  explicit PretendDevice(size_t memoryBytes = size_t{1} << 30)
      : machine_(memoryBytes), out_(machine_.newStream(0)), in_(machine_.newStream(0)) {}

  pretend::Machine& machine() { return machine_; }
  pretend::StreamIndex stream() const { return pretend::Machine::defaultStream(0); }
  std::shared_ptr<PretendMark> mark() { return std::make_shared<PretendMark>(machine_, stream()); }

  // Calls fail from now on.
  void breakDown() { isBroken_ = true; }

  std::string name() const override { return "pretend:0"; }

  Result<std::unique_ptr<PinnedBytes>> allocatePinned(size_t bytes) override {
    return std::unique_ptr<PinnedBytes>(std::make_unique<PretendPinned>(machine_, bytes));
  }

  Result<std::shared_ptr<DeviceMark>> copyToHost(const DeviceBytes& from, size_t offset,
                                                 PinnedBytes& to, size_t count,
                                                 const DeviceMark* after) override {
    const auto* source = static_cast<const PretendBytes&>(from).address() + offset;
    return copy({.direction = pretend::Direction::kToHost,
                 .to = to.bytes().data(),
                 .from = source,
                 .bytes = count,
                 .run = {}},
                out_, after);
  }

  Result<std::shared_ptr<DeviceMark>> copyToDevice(PinnedBytes& from, DeviceBytes& to,
                                                   size_t offset, size_t count,
                                                   const DeviceMark* after) override {
    auto* target = static_cast<PretendBytes&>(to).address() + offset;
    return copy({.direction = pretend::Direction::kToDevice,
                 .to = target,
                 .from = from.bytes().data(),
                 .bytes = count,
                 .run = {}},
                in_, after);
  }

  Status makeStreamWait(const DeviceMark& mark) override {
    static_cast<const PretendMark&>(mark).block(stream());
    return {};
  }

 private:
  Result<std::shared_ptr<DeviceMark>> copy(pretend::Copy copy, pretend::StreamIndex stream,
                                           const DeviceMark* after) {
    if (isBroken_) return Status(Code::kInternal, "pretend:0 has failed");
    if (after != nullptr) static_cast<const PretendMark*>(after)->block(stream);
    machine_.copy(stream, std::move(copy));
    return std::shared_ptr<DeviceMark>(std::make_shared<PretendMark>(machine_, stream));
  }

  pretend::Machine machine_;
  const pretend::StreamIndex out_;
  const pretend::StreamIndex in_;
  std::atomic<bool> isBroken_ = false;
};

}  // namespace sluice::staging::testing
