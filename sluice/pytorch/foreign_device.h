// An accelerator that a module reaches through the table (table.h), as sessions and copiers use it.
#pragma once

#include <memory>
#include <span>
#include <string>

#include <sluice/device.h>

#include <sluice/pytorch/table.h>

namespace sluice::pytorch {

class ForeignDevice final : public Device {
 public:
  // REQUIRES: what `functions` refers to outlives this.
  explicit ForeignDevice(const table::Device& functions);

  // Take over what the module has given; null for null.
  static std::shared_ptr<DeviceMark> take(const table::Mark& mark);
  static std::shared_ptr<DeviceBytes> take(const table::Bytes& bytes);
  // Returns the module's mark, kept alive by `mark`.
  static table::Mark give(const std::shared_ptr<const DeviceMark>& mark);

  std::string name() const override { return name_; }
  Result<std::unique_ptr<PinnedBytes>> allocatePinned(size_t bytes) override;
  Result<std::shared_ptr<DeviceMark>> copyToHost(const DeviceBytes& from, size_t offset,
                                                 PinnedBytes& to, size_t count,
                                                 const DeviceMark* after) override;
  Result<std::shared_ptr<DeviceMark>> copyToDevice(PinnedBytes& from, DeviceBytes& to,
                                                   size_t offset, size_t count,
                                                   const DeviceMark* after) override;
  Status makeStreamWait(const DeviceMark& mark) override;

 private:
  const table::Device functions_;
  const std::string name_;
};

}  // namespace sluice::pytorch
