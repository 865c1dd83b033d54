#include <sluice/pytorch/core_table.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sluice/base/status.h>
#include <sluice/data/staging/copier.h>
#include <sluice/data/staging/lane.h>
#include <sluice/pytorch/device_entrance.h>
#include <sluice/pytorch/foreign_device.h>
#include <sluice/pytorch/group_communicator.h>
#include <sluice/pytorch/messenger.h>
#include <sluice/pytorch/table_status.h>

namespace sluice::pytorch {
namespace {

using collective::CallKind;
using collective::CallTerms;
using collective::Communicator;
using collective::Leg;
using table::Error;
using table::guarded;

// The objects that a module holds by their addresses.
struct Group {
  std::shared_ptr<GroupCommunicator> communicator;
};
struct Copies {
  Copies(const table::Device& functions, size_t pinnedBytes)
      : device(functions), copier(device, pinnedBytes) {}
  ForeignDevice device;
  staging::Copier copier;
};

GroupCommunicator& groupAt(void* group) {
  return *static_cast<Group*>(group)->communicator;
}
staging::Copier& copierAt(void* copier) {
  return static_cast<Copies*>(copier)->copier;
}
DeviceEntrance& entranceAt(void* entrance) {
  return *static_cast<DeviceEntrance*>(entrance);
}

std::span<std::byte> spanOf(const table::Memory& memory) {
  return {static_cast<std::byte*>(memory.data), memory.size};
}

base::Config::Values valuesOf(const table::Values& values) {
  base::Config::Values named;
  for (uint64_t i = 0; i + 1 < values.count; i += 2)
    named.insert_or_assign(std::string(table::viewOf(values.texts[i])),
                           std::string(table::viewOf(values.texts[i + 1])));
  return named;
}

// Turns a function that writes an error into one that returns it.
std::function<Status()> interruptionOf(const table::Interruption& interruption) {
  return [ask = table::take(interruption)] {
    Error error;
    if (ask) ask(&error);
    return table::statusOf(error);
  };
}

CallTerms termsOf(const table::Terms& terms) {
  return {.atMost = Duration(terms.nanoseconds),
          .memory = table::take(terms.memory),
          .done = table::takeEnded(terms.ended)};
}

std::vector<collective::Parcel> parcelsOf(const table::PlainParcel* parcels, uint64_t count) {
  std::vector<collective::Parcel> all;
  all.reserve(count);
  for (uint64_t i = 0; i < count; ++i)
    all.push_back({Rank{parcels[i].rank}, spanOf(parcels[i].bytes)});
  return all;
}

CallKind kindOf(table::ExchangeKind kind) {
  switch (kind) {
    case table::ExchangeKind::kReduce: return CallKind::kReduce;
    case table::ExchangeKind::kGather: return CallKind::kGather;
    case table::ExchangeKind::kScatter: return CallKind::kScatter;
    case table::ExchangeKind::kAllGather: return CallKind::kAllGather;
    case table::ExchangeKind::kReduceScatter: return CallKind::kReduceScatter;
    case table::ExchangeKind::kAllToAll: return CallKind::kAllToAll;
    case table::ExchangeKind::kAllReduce: break;
  }
  return CallKind::kAllReduce;
}

// Makes a call on the group's loop. The terms are taken over here, so that they are freed whatever
// happens.
template <typename Call>
void submit(void* group, const table::Terms& terms, Error* error, Call&& call) {
  guarded(error, [&, taken = termsOf(terms)] {
    return groupAt(group).submit(
        [call, taken](Communicator& communicator) { call(communicator, taken); });
  });
}

void* joinGroup(table::Values options, table::Values environment, int64_t nanoseconds,
                table::Interruption interruption, table::Published published, Error* error) {
  void* joined = nullptr;
  guarded(error,
          [&, ask = interruptionOf(interruption), publish = table::take(published)]() -> Status {
            std::function<Status(uint16_t)> publishing;
            if (publish) {
              publishing = [&](uint16_t port) {
                Error fault;
                publish(port, &fault);
                return table::statusOf(fault);
              };
            }
            SLUICE_ASSIGN_OR_RETURN(
                auto communicator, GroupCommunicator::join(valuesOf(options), valuesOf(environment),
                                                           Duration(nanoseconds), ask, publishing));
            joined = new Group{std::move(communicator)};
            return base::ok();
          });
  return joined;
}

table::GroupFacts describeGroup(void* group) {
  const GroupCommunicator& communicator = groupAt(group);
  return {index(communicator.rank()), communicator.worldSize(), communicator.stagingBytes()};
}

void ownAddress(table::Values options, table::Values environment, table::Interruption interruption,
                table::Closure<void(table::Text)> got, Error* error) {
  guarded(error, [&, ask = interruptionOf(interruption), tell = table::take(got)]() -> Status {
    SLUICE_ASSIGN_OR_RETURN(
        const std::string address,
        GroupCommunicator::ownAddress(valuesOf(options), valuesOf(environment), ask));
    tell(table::textOf(address));
    return base::ok();
  });
}

void allReduce(void* group, table::Memory data, int32_t dtype, table::Terms terms, Error* error) {
  const auto method = groupAt(group).methodFor(data.size);
  submit(group, terms, error, [=](Communicator& communicator, const CallTerms& taken) {
    communicator.allReduce(spanOf(data), static_cast<DType>(dtype), method, taken);
  });
}

void broadcast(void* group, table::Memory data, uint32_t root, table::Terms terms, Error* error) {
  submit(group, terms, error, [=](Communicator& communicator, const CallTerms& taken) {
    communicator.broadcast(spanOf(data), Rank{root}, taken);
  });
}

void barrier(void* group, table::Terms terms, Error* error) {
  submit(group, terms, error,
         [](Communicator& communicator, const CallTerms& taken) { communicator.barrier(taken); });
}

void exchange(void* group, table::ExchangeKind kind, const table::PlainLeg* legs, uint64_t count,
              table::Terms terms, Error* error) {
  std::vector<Leg> taken;
  for (uint64_t i = 0; i < count; ++i)
    taken.push_back({.sends = parcelsOf(legs[i].sends, legs[i].sendCount),
                     .receives = parcelsOf(legs[i].receives, legs[i].receiveCount),
                     .then = table::take(legs[i].then)});
  submit(group, terms, error,
         [kind = kindOf(kind), taken = std::move(taken)](Communicator& communicator,
                                                         const CallTerms& given) {
           communicator.exchange(kind, taken, given);
         });
}

void send(void* group, uint32_t to, uint32_t tag, table::Memory bytes, table::Terms terms,
          Error* error) {
  submit(group, terms, error, [=](Communicator& communicator, const CallTerms& taken) {
    communicator.send(Rank{to}, tag, spanOf(bytes), taken);
  });
}

void receive(void* group, int64_t from, uint32_t tag, table::Memory bytes,
             table::Closure<void(uint32_t)> onSource, table::Terms terms, Error* error) {
  std::optional<Rank> source;
  if (from >= 0) source = Rank{static_cast<uint32_t>(from)};
  submit(group, terms, error,
         [=, tell = table::take(onSource)](Communicator& communicator, const CallTerms& taken) {
           communicator.receive(
               source, tag, spanOf(bytes), [tell](Rank rank) { tell(index(rank)); }, taken);
         });
}

void post(void* messenger, table::Task task, Error* error) {
  guarded(error, [&, run = table::take(task)] {
    static_cast<Messenger*>(messenger)->post(run);
    return base::ok();
  });
}

void* makeCopier(const table::Device* device, uint64_t pinnedBytes, Error* error) {
  void* made = nullptr;
  guarded(error, [&]() -> Status {
    SLUICE_RETURN_IF_ERROR(
        staging::checkPinnedBytes(std::string(table::viewOf(device->name)), pinnedBytes));
    made = new Copies(*device, pinnedBytes);
    return base::ok();
  });
  return made;
}

void toHost(void* copier, table::Bytes from, table::Mark ready, table::Memory to,
            table::Ended arrived) {
  copierAt(copier).toHost(ForeignDevice::take(from), ForeignDevice::take(ready), spanOf(to),
                          table::takeEnded(arrived));
}

void toDevice(void* copier, table::Memory from, table::Bytes to, table::Mark ready,
              table::Closure<void(int32_t, table::Text, table::Mark)> queued) {
  copierAt(copier).toDevice(
      spanOf(from), ForeignDevice::take(to), ForeignDevice::take(ready),
      [tell = table::take(queued)](const Result<std::shared_ptr<const DeviceMark>>& end) {
        const Status& status = end.status();
        tell(static_cast<int32_t>(status.code()), table::textOf(status.message()),
             status.isOk() ? ForeignDevice::give(*end) : table::Mark{});
      });
}

void gradientReady(void* entrance, uint32_t tensor, table::Bytes gradient, table::Bytes result,
                   table::Mark ready, Error* error) {
  const std::shared_ptr<DeviceBytes> own = ForeignDevice::take(gradient);
  const std::shared_ptr<DeviceBytes> other = ForeignDevice::take(result);
  guarded(error, [&, mark = ForeignDevice::take(ready)] {
    return entranceAt(entrance).gradientReady(TensorId{tensor},
                                              {own, other == nullptr ? own : other, mark});
  });
}

void gradientAbsent(void* entrance, uint32_t tensor, table::Bytes result, table::Mark ready,
                    Error* error) {
  guarded(error, [&, memory = DeviceMemory{nullptr, ForeignDevice::take(result),
                                           ForeignDevice::take(ready)}] {
    return entranceAt(entrance).gradientAbsent(TensorId{tensor}, memory);
  });
}

void handOutDelayed(void* entrance, uint32_t tensor, table::Bytes result, table::Mark ready,
                    Error* error) {
  guarded(error, [&, memory = DeviceMemory{nullptr, ForeignDevice::take(result),
                                           ForeignDevice::take(ready)}] {
    return entranceAt(entrance).handOutDelayed(TensorId{tensor}, memory);
  });
}

void waitBeforeResults(void* entrance, table::Mark mark, Error* error) {
  guarded(error, [&, taken = ForeignDevice::take(mark)] {
    return entranceAt(entrance).waitBeforeResults(taken);
  });
}

}  // namespace

const table::CoreTable& coreTable() {
  static constexpr table::CoreTable kTable{
      .version = table::kVersion,
      .size = sizeof(table::CoreTable),
      .joinGroup = joinGroup,
      .describeGroup = describeGroup,
      .leaveGroup = [](void* group) { groupAt(group).leave(); },
      .freeGroup = [](void* group) { delete static_cast<Group*>(group); },
      .ownAddress = ownAddress,
      .allReduce = allReduce,
      .broadcast = broadcast,
      .barrier = barrier,
      .exchange = exchange,
      .send = send,
      .receive = receive,
      .makeMessenger = []() -> void* { return new Messenger; },
      .post = post,
      .endMessenger = [](void* messenger) { static_cast<Messenger*>(messenger)->end(); },
      .freeMessenger = [](void* messenger) { delete static_cast<Messenger*>(messenger); },
      .makeCopier = makeCopier,
      .stopCopier = [](void* copier) { copierAt(copier).stop(); },
      .freeCopier = [](void* copier) { delete static_cast<Copies*>(copier); },
      .hasToHost = [](void* copier) -> int32_t { return copierAt(copier).hasToHost() ? 1 : 0; },
      .toHost = toHost,
      .toDevice = toDevice,
      .gradientReady = gradientReady,
      .gradientAbsent = gradientAbsent,
      .handOutDelayed = handOutDelayed,
      .waitBeforeResults = waitBeforeResults,
  };
  return kTable;
}

}  // namespace sluice::pytorch
