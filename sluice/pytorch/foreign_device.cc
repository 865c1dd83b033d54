#include <sluice/pytorch/foreign_device.h>

#include <sluice/base/status.h>
#include <sluice/pytorch/table_status.h>

namespace sluice::pytorch {
namespace {

class ForeignMark final : public DeviceMark {
 public:
  explicit ForeignMark(const table::Mark& mark)
      : mark_(mark.mark), isDone_(mark.isDone), owner_(table::take(mark.owner)) {}

  Result<bool> isDone() const override {
    table::Error error;
    const bool done = isDone_(mark_, &error) == 1;
    if (error.code != 0) return table::statusOf(error);
    return done;
  }
  table::Mark give(std::shared_ptr<const DeviceMark> self) const {
    return {mark_, table::Owner::of(std::move(self)), isDone_};
  }
  void* raw() const { return mark_; }

 private:
  void* const mark_;
  int32_t (*const isDone_)(void*, table::Error*);
  const std::shared_ptr<void> owner_;
};

class ForeignBytes final : public DeviceBytes {
 public:
  explicit ForeignBytes(const table::Bytes& bytes)
      : bytes_(bytes.bytes), size_(bytes.size), owner_(table::take(bytes.owner)) {}

  size_t size() const override { return size_; }
  void* raw() const { return bytes_; }

 private:
  void* const bytes_;
  const size_t size_;
  const std::shared_ptr<void> owner_;
};

class ForeignPinned final : public PinnedBytes {
 public:
  explicit ForeignPinned(const table::Pinned& pinned)
      : pinned_(pinned), owner_(table::take(pinned.owner)) {}

  std::span<std::byte> bytes() override {
    return {static_cast<std::byte*>(pinned_.memory.data), pinned_.memory.size};
  }
  void* raw() const { return pinned_.pinned; }

 private:
  const table::Pinned pinned_;
  const std::shared_ptr<void> owner_;
};

// All marks, bytes and pinned memory that sessions hand to a ForeignDevice are its own kind's.
void* rawOf(const DeviceMark* mark) {
  return mark == nullptr ? nullptr : static_cast<const ForeignMark*>(mark)->raw();
}
void* rawOf(const DeviceBytes& bytes) {
  return static_cast<const ForeignBytes&>(bytes).raw();
}
void* rawOf(const PinnedBytes& pinned) {
  return static_cast<const ForeignPinned&>(pinned).raw();
}

Result<std::shared_ptr<DeviceMark>> markOf(const table::Mark& end, const table::Error& error) {
  if (error.code != 0) return table::statusOf(error);
  return ForeignDevice::take(end);
}

}  // namespace

ForeignDevice::ForeignDevice(const table::Device& functions)
    : functions_(functions), name_(table::viewOf(functions.name)) {}

std::shared_ptr<DeviceMark> ForeignDevice::take(const table::Mark& mark) {
  return mark.mark == nullptr ? nullptr : std::make_shared<ForeignMark>(mark);
}

std::shared_ptr<DeviceBytes> ForeignDevice::take(const table::Bytes& bytes) {
  return bytes.bytes == nullptr ? nullptr : std::make_shared<ForeignBytes>(bytes);
}

table::Mark ForeignDevice::give(const std::shared_ptr<const DeviceMark>& mark) {
  if (mark == nullptr) return {};
  return static_cast<const ForeignMark&>(*mark).give(mark);
}

Result<std::unique_ptr<PinnedBytes>> ForeignDevice::allocatePinned(size_t bytes) {
  table::Error error;
  table::Pinned pinned{};
  functions_.allocatePinned(functions_.device, bytes, &pinned, &error);
  if (error.code != 0) return table::statusOf(error);
  return std::unique_ptr<PinnedBytes>(std::make_unique<ForeignPinned>(pinned));
}

Result<std::shared_ptr<DeviceMark>> ForeignDevice::copyToHost(const DeviceBytes& from,
                                                              size_t offset, PinnedBytes& to,
                                                              size_t count,
                                                              const DeviceMark* after) {
  table::Error error;
  table::Mark end{};
  functions_.copyToHost(functions_.device, rawOf(from), offset, rawOf(to), count, rawOf(after),
                        &end, &error);
  return markOf(end, error);
}

Result<std::shared_ptr<DeviceMark>> ForeignDevice::copyToDevice(PinnedBytes& from, DeviceBytes& to,
                                                                size_t offset, size_t count,
                                                                const DeviceMark* after) {
  table::Error error;
  table::Mark end{};
  functions_.copyToDevice(functions_.device, rawOf(from), rawOf(to), offset, count, rawOf(after),
                          &end, &error);
  return markOf(end, error);
}

Status ForeignDevice::makeStreamWait(const DeviceMark& mark) {
  table::Error error;
  functions_.makeStreamWait(functions_.device, rawOf(&mark), &error);
  return table::statusOf(error);
}

}  // namespace sluice::pytorch
