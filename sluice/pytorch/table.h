// What the engine and a module that is built for one Torch say to each other: structs and functions
// as C has them. The two may be compiled for different layouts of the standard library (Torch 2.6 has
// the old std::string), so no std:: type, no exception and no C++ object of one side is touched by
// the other. Objects cross as pointers that only their own side looks into.
//
// The engine's table (CoreTable, core_table.h) reaches a module as an address, by way of Python. The
// module compares `version` before it calls anything.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace sluice::pytorch::table {

// Counts up whenever a struct or a function below changes. New entries at the end of a table leave
// it: `size` of the table says how many there are.
inline constexpr uint32_t kVersion = 1;

// Text that stays the caller's: the callee copies what it keeps.
struct Text {
  const char* data;
  uint64_t size;
};

// Memory that stays the caller's.
struct Memory {
  void* data;
  uint64_t size;
};

// Receives the error of a call, in the caller's memory. `code` is a sluice::Code; 0: no error. Longer
// texts are cut.
struct Error {
  int32_t code = 0;
  char text[2044];  // set with a code other than 0
};

// Keeps an object of the giver alive. The taker calls `free` once; null: there is nothing to keep.
struct Owner {
  void* self;
  void (*free)(void* self);

  template <typename T>
  static Owner of(T object) {
    return {new T(std::move(object)), [](void* self) { delete static_cast<T*>(self); }};
  }
};

// A function of the giver with its data. The taker may call it on any thread, and frees it once.
// What it calls must not throw.
template <typename Signature>
struct Closure;
template <typename R, typename... A>
struct Closure<R(A...)> {
  void* self;
  void (*free)(void* self);
  R (*call)(void* self, A...);  // null: there is no function

  template <typename F>
  static Closure of(F function) {
    return {new F(std::move(function)), [](void* self) { delete static_cast<F*>(self); },
            [](void* self, A... arguments) noexcept -> R {
              return (*static_cast<F*>(self))(arguments...);
            }};
  }
};

using Ended = Closure<void(int32_t code, Text text)>;
using Task = Closure<void()>;

// A place in the work of a stream of the module's device.
struct Mark {
  void* mark;
  Owner owner;
  // Returns 1 if all work before the mark is done, 0 if not; on an error any value. Never waits.
  int32_t (*isDone)(void* mark, Error* error);
};

// The bytes of one tensor on the module's device.
struct Bytes {
  void* bytes;
  Owner owner;
  uint64_t size;
};

// Pinned memory of the host.
struct Pinned {
  void* pinned;
  Owner owner;
  Memory memory;
};

// The module's accelerator. The functions do what those of sluice::Device do (device.h).
struct Device {
  void* device;
  Text name;
  void (*allocatePinned)(void* device, uint64_t bytes, Pinned* out, Error* error);
  // `after` may be null.
  void (*copyToHost)(void* device, void* bytes, uint64_t offset, void* pinned, uint64_t count,
                     void* after, Mark* out, Error* error);
  void (*copyToDevice)(void* device, void* pinned, void* bytes, uint64_t offset, uint64_t count,
                       void* after, Mark* out, Error* error);
  void (*makeStreamWait)(void* device, void* mark, Error* error);
};

// A call to a process group of Torch. It works on memory of its own.
struct GroupCall {
  void* piece;
  Owner owner;
};

// A process group of Torch that reduces for a session. Both calls copy the data first, and return
// before they end; `ended` runs once, on a thread of the group or within the call.
struct ProcessGroup {
  void* group;
  uint32_t worldSize;
  void (*allReduce)(void* group, Memory data, int32_t dtype, double scale, Ended ended,
                    GroupCall* out, Error* error);
  void (*broadcast)(void* group, Memory data, uint32_t root, Ended ended, GroupCall* out,
                    Error* error);
  // Copies the result of a call that has ended.
  void (*take)(void* piece, Memory to);
};

// As collective::CallTerms. `ended` runs on the loop.
struct Terms {
  int64_t nanoseconds;
  Owner memory;
  Ended ended;
};

struct PlainParcel {
  uint32_t rank;
  Memory bytes;
};

// As collective::Leg.
struct PlainLeg {
  const PlainParcel* sends;
  uint64_t sendCount;
  const PlainParcel* receives;
  uint64_t receiveCount;
  Task then;
};

enum class ExchangeKind : int32_t {
  kReduce,
  kGather,
  kScatter,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kAllReduce
};

// Names and values in turn.
struct Values {
  const Text* texts;
  uint64_t count;  // of the texts
};

// What a call that waits is ended by: it writes an error.
using Interruption = Closure<void(Error* error)>;
using Published = Closure<void(uint16_t port, Error* error)>;

struct GroupFacts {
  uint32_t rank;
  uint32_t worldSize;
  uint64_t stagingBytes;
};

// The functions of the engine. Any thread may call them; none throws. A function with an `error`
// sets it, to code 0 if all went well; what it was given is freed in both cases.
struct CoreTable {
  uint32_t version;
  uint32_t size;

  // A process group of our own: GroupCommunicator (group_communicator.h).
  void* (*joinGroup)(Values options, Values environment, int64_t nanoseconds,
                     Interruption interruption, Published published, Error* error);
  GroupFacts (*describeGroup)(void* group);
  void (*leaveGroup)(void* group);
  void (*freeGroup)(void* group);
  void (*ownAddress)(Values options, Values environment, Interruption interruption,
                     Closure<void(Text address)> got, Error* error);
  // An error means that the call was not made, and `ended` does not run.
  void (*allReduce)(void* group, Memory data, int32_t dtype, Terms terms, Error* error);
  void (*broadcast)(void* group, Memory data, uint32_t root, Terms terms, Error* error);
  void (*barrier)(void* group, Terms terms, Error* error);
  void (*exchange)(void* group, ExchangeKind kind, const PlainLeg* legs, uint64_t count,
                   Terms terms, Error* error);
  void (*send)(void* group, uint32_t to, uint32_t tag, Memory bytes, Terms terms, Error* error);
  // `from` below 0: from any rank.
  void (*receive)(void* group, int64_t from, uint32_t tag, Memory bytes,
                  Closure<void(uint32_t rank)> onSource, Terms terms, Error* error);

  // Threads for callbacks: Messenger (messenger.h).
  void* (*makeMessenger)();
  void (*post)(void* messenger, Task task, Error* error);
  void (*endMessenger)(void* messenger);
  void (*freeMessenger)(void* messenger);

  // Copies between a device and the host: staging::Copier (copier.h). The device outlives it.
  void* (*makeCopier)(const Device* device, uint64_t pinnedBytes, Error* error);
  void (*stopCopier)(void* copier);
  void (*freeCopier)(void* copier);
  int32_t (*hasToHost)(void* copier);
  // `from` may have no bytes: then `arrived` runs when all earlier ones have arrived.
  void (*toHost)(void* copier, Bytes from, Mark ready, Memory to, Ended arrived);
  void (*toDevice)(void* copier, Memory from, Bytes to, Mark ready,
                   Closure<void(int32_t code, Text text, Mark end)> queued);

  // A session's entrance for tensors on a device: DeviceEntrance (device_entrance.h). A `result`
  // without bytes is the gradient's memory.
  void (*gradientReady)(void* entrance, uint32_t tensor, Bytes gradient, Bytes result, Mark ready,
                        Error* error);
  void (*gradientAbsent)(void* entrance, uint32_t tensor, Bytes result, Mark ready, Error* error);
  void (*handOutDelayed)(void* entrance, uint32_t tensor, Bytes result, Mark ready, Error* error);
  void (*waitBeforeResults)(void* entrance, Mark mark, Error* error);
};

// Takes over what the other side has given.
inline std::shared_ptr<void> take(const Owner& owner) {
  return owner.free == nullptr ? nullptr : std::shared_ptr<void>(owner.self, owner.free);
}
template <typename R, typename... A>
std::function<R(A...)> take(const Closure<R(A...)>& closure) {
  if (closure.call == nullptr) return {};
  return [self = std::shared_ptr<void>(closure.self, closure.free),
          call = closure.call](A... arguments) { return call(self.get(), arguments...); };
}

}  // namespace sluice::pytorch::table
