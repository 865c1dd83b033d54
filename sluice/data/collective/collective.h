// All-reduce and its relatives, asynchronous, errors as Status. One interface for every engine;
// every method belongs to the engine's loop.
//
// Every rank makes the same calls. Two ranks know a call by its Ticket, not by the order of calls:
// ranks may make calls in different orders, and several may be under way at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include <sluice/base/ids.h>
#include <sluice/base/status.h>
#include <sluice/data/codec/codec.h>
#include <sluice/data/collective/method.h>
#include <sluice/model.h>

namespace sluice::collective {

// Names a call: unique among all calls of one engine whose step is not over.
struct Ticket {
  Step step{};
  TensorId number{};
  friend auto operator<=>(const Ticket&, const Ticket&) = default;
};

// The arguments of every call. The data stays where it is until `done`; after an error it stays
// until the fabric is gone, since other ranks' bytes may still be on their way into it.
struct Call {
  Ticket ticket{};
  Method method = Method::kDirect;
  DType dtype = DType::kF32;
  std::span<std::byte> data{};  // all of it, on every rank; the same size everywhere
  uint32_t strips = 0;          // pieces that follow each other, alike on all ranks; 0: by size
};

struct ReductionOptions {
  double scale = 1;  // each rank's part is multiplied by it before it is added: 1/N makes a mean
  // Compresses the data at each hop; only f32. Null: the data travels as it is.
  const codec::Codec* codec = nullptr;
};

// Runs on the loop, exactly once.
using Done = std::function<void(const Status&)>;

class Collective {
 public:
  virtual ~Collective() = default;

  // Gives every rank the sum of all ranks' data. All ranks get the same bits, also with a codec.
  virtual void allReduce(const Call& call, const ReductionOptions& reduction, Done done) = 0;

  // Gives each rank the sum in its own part (partOf(), below); the other parts must not be used.
  virtual void reduceScatter(const Call& call, const ReductionOptions& reduction, Done done) = 0;

  // Gives every rank each rank's own part.
  virtual void allGather(const Call& call, Done done) = 0;

  // Gives every rank the root's data.
  virtual void broadcast(const Call& call, Rank root, Done done) = 0;

  // Ends everything under way with `why`, and every later call too.
  virtual void fail(const Status& why) = 0;

  // Describes what the call waits for, in words that name ranks; empty if the call is not under
  // way.
  virtual std::string describeWait(const Ticket& ticket) const = 0;
};

// Neighbouring elements of a call's data, counted from its beginning.
struct ElementRange {
  uint64_t first = 0;
  uint64_t count = 0;
  friend bool operator==(const ElementRange&, const ElementRange&) = default;
};

// Returns the part of `elements` elements that belongs to a rank in reduceScatter() and
// allGather(). Parts are equal and begin at multiples of a codec's block.
ElementRange partOf(Rank rank, uint32_t world, uint64_t elements);

}  // namespace sluice::collective
