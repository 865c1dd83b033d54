#include <sluice/pytorch/backend/core.h>

#include <pthread.h>

#include <utility>

#include <sluice/base/check.h>
#include <sluice/base/fork.h>
#include <sluice/pytorch/table_status.h>

namespace sluice::pytorch {
namespace {

const table::CoreTable* attached = nullptr;

table::Memory memoryOf(std::span<const std::byte> bytes) {
  return {const_cast<std::byte*>(bytes.data()), bytes.size()};  // NOLINT: C has no other type
}

// Names and values in turn, as long as the map lives.
std::vector<table::Text> textsOf(const CoreGroup::Values& values) {
  std::vector<table::Text> texts;
  for (const auto& [name, value] : values) {
    texts.push_back(table::textOf(name));
    texts.push_back(table::textOf(value));
  }
  return texts;
}

table::Interruption give(const CoreGroup::Interruption& interruption) {
  if (!interruption) return {};
  return table::Interruption::of(
      [interruption](table::Error* error) { table::guarded(error, interruption); });
}

table::Terms give(CoreTerms terms) {
  return {terms.atMost.count(), table::Owner::of(std::move(terms.memory)),
          table::giveEnded(std::move(terms.done))};
}

std::vector<table::PlainParcel> give(const std::vector<CoreParcel>& parcels) {
  std::vector<table::PlainParcel> given;
  given.reserve(parcels.size());
  for (const CoreParcel& parcel : parcels)
    given.push_back({index(parcel.rank), memoryOf(parcel.bytes)});
  return given;
}

// Makes a call that writes its error.
template <typename Call>
Status statusFrom(Call&& call) {
  table::Error error;
  call(&error);
  return table::statusOf(error);
}

}  // namespace

Status attachCore(const table::CoreTable& core) {
  if (core.version != table::kVersion || core.size < sizeof(table::CoreTable)) {
    return {Code::kRefused,
            "this module speaks version " + std::to_string(table::kVersion) +
                " of the engine's table, and the engine version " + std::to_string(core.version) +
                "; 'pip install --force-reinstall --no-deps torch-sluice' repairs the package"};
  }
  // This module has its own copy of the number of forks (fork.h), which the engine's handler does
  // not see.
  if (std::exchange(attached, &core) == nullptr)
    ::pthread_atfork(nullptr, nullptr, [] { base::detail::forkDepth.fetch_add(1); });
  return {};
}

const table::CoreTable& core() {
  SLUICE_CHECK(attached != nullptr);
  return *attached;
}

Result<std::shared_ptr<CoreGroup>> CoreGroup::join(
    const Values& options, const Values& environment, std::chrono::nanoseconds atMost,
    const Interruption& interruption, const std::function<Status(uint16_t)>& published) {
  const auto flags = textsOf(options);
  const auto variables = textsOf(environment);
  table::Published publish{};
  if (published) {
    publish = table::Published::of([published](uint16_t port, table::Error* error) {
      table::guarded(error, [&] { return published(port); });
    });
  }
  table::Error error;
  void* const group =
      core().joinGroup({flags.data(), flags.size()}, {variables.data(), variables.size()},
                       atMost.count(), give(interruption), publish, &error);
  if (error.code != 0) return table::statusOf(error);
  return std::make_shared<CoreGroup>(group);
}

Result<std::string> CoreGroup::ownAddress(const Values& options, const Values& environment,
                                          const Interruption& interruption) {
  const auto flags = textsOf(options);
  const auto variables = textsOf(environment);
  std::string address;
  const auto got = table::Closure<void(table::Text)>::of(
      [&address](table::Text text) { address = table::viewOf(text); });
  const Status status = statusFrom([&](table::Error* error) {
    core().ownAddress({flags.data(), flags.size()}, {variables.data(), variables.size()},
                      give(interruption), got, error);
  });
  if (!status.isOk()) return status;
  return address;
}

Status CoreGroup::allReduce(std::span<std::byte> data, DType dtype, CoreTerms terms) {
  return statusFrom([&](table::Error* error) {
    core().allReduce(group_, memoryOf(data), static_cast<int32_t>(dtype), give(std::move(terms)),
                     error);
  });
}

Status CoreGroup::broadcast(std::span<std::byte> data, Rank root, CoreTerms terms) {
  return statusFrom([&](table::Error* error) {
    core().broadcast(group_, memoryOf(data), index(root), give(std::move(terms)), error);
  });
}

Status CoreGroup::barrier(CoreTerms terms) {
  return statusFrom(
      [&](table::Error* error) { core().barrier(group_, give(std::move(terms)), error); });
}

Status CoreGroup::exchange(table::ExchangeKind kind, const std::vector<CoreLeg>& legs,
                           CoreTerms terms) {
  std::vector<std::vector<table::PlainParcel>> parcels;
  std::vector<table::PlainLeg> given;
  for (const CoreLeg& leg : legs) {
    const auto& sends = parcels.emplace_back(give(leg.sends));
    table::PlainLeg& one =
        given.emplace_back(table::PlainLeg{sends.data(), sends.size(), nullptr, 0, {}});
    const auto& receives = parcels.emplace_back(give(leg.receives));
    one.receives = receives.data();
    one.receiveCount = receives.size();
    if (leg.then) one.then = table::Task::of(leg.then);
  }
  return statusFrom([&](table::Error* error) {
    core().exchange(group_, kind, given.data(), given.size(), give(std::move(terms)), error);
  });
}

Status CoreGroup::send(Rank to, uint32_t tag, std::span<std::byte> bytes, CoreTerms terms) {
  return statusFrom([&](table::Error* error) {
    core().send(group_, index(to), tag, memoryOf(bytes), give(std::move(terms)), error);
  });
}

Status CoreGroup::receive(std::optional<Rank> from, uint32_t tag, std::span<std::byte> bytes,
                          std::function<void(Rank)> onSource, CoreTerms terms) {
  const auto tell = table::Closure<void(uint32_t)>::of(
      [onSource = std::move(onSource)](uint32_t rank) { onSource(Rank{rank}); });
  return statusFrom([&](table::Error* error) {
    core().receive(group_, from ? int64_t{index(*from)} : -1, tag, memoryOf(bytes), tell,
                   give(std::move(terms)), error);
  });
}

void CoreMessenger::post(std::function<void()> task) {
  // The system may have no thread left, and the task must run.
  const Status status = statusFrom(
      [&](table::Error* error) { core().post(messenger_, table::Task::of(task), error); });
  if (!status.isOk()) task();
}

table::Mark giveMark(std::shared_ptr<const DeviceMark> mark) {
  if (mark == nullptr) return {};
  void* const raw = const_cast<DeviceMark*>(mark.get());  // NOLINT: C has no other type
  return {raw, table::Owner::of(std::move(mark)), [](void* self, table::Error* error) -> int32_t {
            bool isDone = false;
            table::guarded(error, [&] {
              const auto done = static_cast<const DeviceMark*>(self)->isDone();
              if (done.isOk()) isDone = *done;
              return done.status();
            });
            return isDone ? 1 : 0;
          }};
}

table::Bytes giveBytes(std::shared_ptr<const DeviceBytes> bytes) {
  if (bytes == nullptr) return {};
  void* const raw = const_cast<DeviceBytes*>(bytes.get());  // NOLINT: C has no other type
  const uint64_t size = bytes->size();
  return {raw, table::Owner::of(std::move(bytes)), size};
}

table::Device giveDevice(Device& device, const std::string& name) {
  table::Device given{};
  given.device = &device;
  given.name = table::textOf(name);
  given.allocatePinned = [](void* self, uint64_t bytes, table::Pinned* out, table::Error* error) {
    table::guarded(error, [&]() -> Status {
      auto pinned = static_cast<Device*>(self)->allocatePinned(bytes);
      if (!pinned.isOk()) return pinned.status();
      PinnedBytes* const raw = pinned->get();
      *out = {raw, table::Owner::of(*std::move(pinned)), memoryOf(raw->bytes())};
      return {};
    });
  };
  given.copyToHost = [](void* self, void* bytes, uint64_t offset, void* pinned, uint64_t count,
                        void* after, table::Mark* out, table::Error* error) {
    table::guarded(error, [&]() -> Status {
      auto end = static_cast<Device*>(self)->copyToHost(
          *static_cast<const DeviceBytes*>(bytes), offset, *static_cast<PinnedBytes*>(pinned),
          count, static_cast<const DeviceMark*>(after));
      if (end.isOk()) *out = giveMark(*end);
      return end.status();
    });
  };
  given.copyToDevice = [](void* self, void* pinned, void* bytes, uint64_t offset, uint64_t count,
                          void* after, table::Mark* out, table::Error* error) {
    table::guarded(error, [&]() -> Status {
      auto end = static_cast<Device*>(self)->copyToDevice(
          *static_cast<PinnedBytes*>(pinned), *static_cast<DeviceBytes*>(bytes), offset, count,
          static_cast<const DeviceMark*>(after));
      if (end.isOk()) *out = giveMark(*end);
      return end.status();
    });
  };
  given.makeStreamWait = [](void* self, void* mark, table::Error* error) {
    table::guarded(error, [&] {
      return static_cast<Device*>(self)->makeStreamWait(*static_cast<const DeviceMark*>(mark));
    });
  };
  return given;
}

Result<std::unique_ptr<CoreCopier>> CoreCopier::make(Device& device, size_t pinnedBytes) {
  const std::string name = device.name();
  const table::Device given = giveDevice(device, name);
  table::Error error;
  void* const copier = core().makeCopier(&given, pinnedBytes, &error);
  if (error.code != 0) return table::statusOf(error);
  return std::make_unique<CoreCopier>(copier);
}

void CoreCopier::toHost(std::shared_ptr<const DeviceBytes> from,
                        std::shared_ptr<const DeviceMark> ready, std::span<std::byte> to,
                        const Done& arrived) {
  core().toHost(copier_, giveBytes(std::move(from)), giveMark(std::move(ready)), memoryOf(to),
                table::giveEnded(arrived));
}

void CoreCopier::toDevice(std::span<const std::byte> from, std::shared_ptr<DeviceBytes> to,
                          std::shared_ptr<const DeviceMark> ready, const Queued& queued) {
  const auto tell = table::Closure<void(int32_t, table::Text, table::Mark)>::of(
      [queued](int32_t code, table::Text text, table::Mark end) {
        if (code != 0) return queued(table::statusOf(code, table::viewOf(text)));
        queued(std::shared_ptr<const DeviceMark>(table::take(end.owner),
                                                 static_cast<const DeviceMark*>(end.mark)));
      });
  core().toDevice(copier_, memoryOf(from), giveBytes(std::move(to)), giveMark(std::move(ready)),
                  tell);
}

}  // namespace sluice::pytorch
