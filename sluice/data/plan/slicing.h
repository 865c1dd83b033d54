// Cuts tensors into slices and chooses the server on which each slice lives. A slice travels as one
// message, and is summed and updated as one. Pure functions over plain values: every rank computes
// the same slices.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <sluice/base/clock.h>
#include <sluice/base/ids.h>
#include <sluice/base/status.h>
#include <sluice/data/plan/model.h>
#include <sluice/data/plan/roles.h>
#include <sluice/observer.h>

namespace sluice::plan {

struct Slice {
  SliceId id{};
  TensorId tensor{};
  uint32_t chunk = 0;     // of its tensor; the slices of one chunk go to different servers
  uint32_t priority = 0;  // the tensor's place in the forward pass; 0 is the most urgent
  uint64_t offset = 0;    // first element in the tensor
  uint64_t count = 0;     // elements
  Rank server{};

  std::string toString() const;  // "slice 17 = tensor 3 [50000, 100000) on rank 2, priority 3"
  friend bool operator==(const Slice&, const Slice&) = default;
};

// The values are part of the plan's bytes: never renumber.
enum class Placement : uint8_t {
  // MXNet's KVStore, the papers' baseline: layer granularity. A tensor of less than `sliceElements`
  // (kKvstoreSplitFrom) lives on one server, drawn from the seed; a larger one is split equally over
  // all.
  kKvstore = 0,
  // P3 as published: slices of at most `sliceElements`, dealt to the servers in turn. Every worker
  // sends in the same order, so at any time the network is busy into few servers only.
  kRoundRobin = 1,
  // sluice's own: every chunk is spread over all servers, and each worker starts with another
  // server (order.h).
  kSharded = 2,
  // Layer-wise sharding: all slices of a tensor live on one server, the one that holds least so far.
  // A server with a large tensor has more than the others, however many servers there are.
  kLayers = 3,
};

std::string_view name(Placement placement);

struct Slicing {
  Placement placement = Placement::kSharded;
  uint64_t sliceElements = 50'000;  // of one message, at most; kvstore: above
  // sharded: a chunk is spread over fewer servers rather than into messages smaller than this, and
  // a tensor of less than twice this goes whole to one server.
  uint64_t minMessageElements = 2'048;
  uint64_t seed = 1;          // of the random servers that kvstore draws
  uint32_t hostsPerRack = 1;  // sharded: how many neighbouring ranks share an uplink; see order.h

  friend bool operator==(const Slicing&, const Slicing&) = default;
};

inline constexpr uint64_t kKvstoreSplitFrom = 1'000'000;  // as published
inline constexpr size_t kMaxSlices = size_t{1} << 24;

// Slices are numbered by tensor, then by offset. They cover every tensor exactly once.
//
// With `sharded`, no two servers' totals differ by more than the elements of two smallest messages,
// and if every chunk is spread over all servers, by more than one element.
Result<std::vector<Slice>> cut(const Model& model, const Roles& roles, const Slicing& slicing);

// Reports the stages of slices to an observer. Without an observer it does nothing.
class Stages final {
 public:
  // REQUIRES: both outlive this. `observer` may be null.
  Stages(StageObserver* observer, const Clock& clock) : observer_(observer), clock_(clock) {}

  // Reports that a slice enters a stage now.
  void enter(Stage stage, Step step, TensorId tensor, SliceId slice, Rank peer) const {
    if (observer_ != nullptr) observer_->onStage({stage, step, tensor, slice, peer, clock_.now()});
  }
  void enter(Stage stage, Step step, const Slice& slice, Rank peer) const {
    enter(stage, step, slice.tensor, slice.id, peer);
  }

 private:
  StageObserver* const observer_;
  const Clock& clock_;
};

}  // namespace sluice::plan

namespace sluice {
using plan::Placement;
using plan::Slice;
}  // namespace sluice
