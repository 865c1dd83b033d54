// The engine as a module that is built for one Torch sees it: the table of C functions (table.h) in
// the dress of C++. Nothing of the engine is linked into the module but Status.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <sluice/device.h>
#include <sluice/model.h>

#include <sluice/pytorch/table.h>

namespace sluice::pytorch {

using Done = std::function<void(const Status&)>;

// Sets the table that every call below goes through. Once, before any of them. Returns an error for
// a table that this module does not know.
Status attachCore(const table::CoreTable& core);
const table::CoreTable& core();

// As CallTerms, Parcel and Leg of collective::Communicator.
struct CoreTerms {
  std::chrono::nanoseconds atMost{};
  std::shared_ptr<const void> memory{};
  Done done{};
};
struct CoreParcel {
  Rank rank{};
  std::span<std::byte> bytes{};
};
struct CoreLeg {
  std::vector<CoreParcel> sends{};
  std::vector<CoreParcel> receives{};
  std::function<void()> then{};
};

// GroupCommunicator. A call that returns an error was not made.
class CoreGroup final {
 public:
  using Values = std::map<std::string, std::string>;
  using Interruption = std::function<Status()>;
  static Result<std::shared_ptr<CoreGroup>> join(const Values& options, const Values& environment,
                                                 std::chrono::nanoseconds atMost,
                                                 const Interruption& interruption,
                                                 const std::function<Status(uint16_t)>& published);
  static Result<std::string> ownAddress(const Values& options, const Values& environment,
                                        const Interruption& interruption);
  explicit CoreGroup(void* group) : group_(group), facts_(core().describeGroup(group)) {}
  CoreGroup(const CoreGroup&) = delete;
  CoreGroup& operator=(const CoreGroup&) = delete;
  ~CoreGroup() { core().freeGroup(group_); }

  uint32_t rank() const { return facts_.rank; }
  uint32_t worldSize() const { return facts_.worldSize; }
  size_t stagingBytes() const { return facts_.stagingBytes; }

  Status allReduce(std::span<std::byte> data, DType dtype, CoreTerms terms);
  Status broadcast(std::span<std::byte> data, Rank root, CoreTerms terms);
  Status barrier(CoreTerms terms);
  Status exchange(table::ExchangeKind kind, const std::vector<CoreLeg>& legs, CoreTerms terms);
  Status send(Rank to, uint32_t tag, std::span<std::byte> bytes, CoreTerms terms);
  Status receive(std::optional<Rank> from, uint32_t tag, std::span<std::byte> bytes,
                 std::function<void(Rank)> onSource, CoreTerms terms);
  void leave() { core().leaveGroup(group_); }

 private:
  void* const group_;
  const table::GroupFacts facts_;
};

// Messenger.
class CoreMessenger final {
 public:
  CoreMessenger() : messenger_(core().makeMessenger()) {}
  CoreMessenger(const CoreMessenger&) = delete;
  CoreMessenger& operator=(const CoreMessenger&) = delete;
  ~CoreMessenger() { core().freeMessenger(messenger_); }

  // Runs the task here if there is no thread for it.
  void post(std::function<void()> task);
  void end() { core().endMessenger(messenger_); }

 private:
  void* const messenger_;
};

// A Device of this module, as the engine calls it. The device outlives what is made with this.
table::Device giveDevice(Device& device, const std::string& name);
table::Mark giveMark(std::shared_ptr<const DeviceMark> mark);
table::Bytes giveBytes(std::shared_ptr<const DeviceBytes> bytes);

// staging::Copier.
class CoreCopier final {
 public:
  using Queued = std::function<void(Result<std::shared_ptr<const DeviceMark>>)>;

  // Returns an error for too little pinned memory. The device outlives the result.
  static Result<std::unique_ptr<CoreCopier>> make(Device& device, size_t pinnedBytes);
  explicit CoreCopier(void* copier) : copier_(copier) {}
  CoreCopier(const CoreCopier&) = delete;
  CoreCopier& operator=(const CoreCopier&) = delete;
  ~CoreCopier() { core().freeCopier(copier_); }

  void stop() { core().stopCopier(copier_); }
  bool hasToHost() const { return core().hasToHost(copier_) != 0; }
  void toHost(std::shared_ptr<const DeviceBytes> from, std::shared_ptr<const DeviceMark> ready,
              std::span<std::byte> to, const Done& arrived);
  void toDevice(std::span<const std::byte> from, std::shared_ptr<DeviceBytes> to,
                std::shared_ptr<const DeviceMark> ready, const Queued& queued);

 private:
  void* const copier_;
};

}  // namespace sluice::pytorch
