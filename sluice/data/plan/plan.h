// The plan on which all ranks agree, by hash, before the first step: the tensors, the slices they
// are cut into, the servers that keep the slices, and the strategy with its settings.
//
// A PlanSpec holds the choices; Plan::make derives the slices from them. Both are plain values; a
// Plan never changes once made and may be read from any thread. Ranks compare hashes. They exchange
// specs (serialise, deserialise) only if the hashes differ, to say in one line what differs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <sluice/base/ids.h>
#include <sluice/base/status.h>
#include <sluice/data/plan/model.h>
#include <sluice/data/plan/roles.h>
#include <sluice/data/plan/slicing.h>

namespace sluice::plan {

struct PlanSpec {
  Epoch epoch{};
  Model model{};
  Roles roles{};
  Slicing slicing{};
  std::string strategy{};  // by name: "sluice", "p3", ...
  std::map<std::string, std::string>
      settings{};  // of the strategy: those that must be the same on all ranks

  friend bool operator==(const PlanSpec&, const PlanSpec&) = default;
};

using Hash = std::array<std::byte, 32>;
std::string toHex(const Hash& hash);

class Plan final {
 public:
  static Result<Plan> make(PlanSpec spec);

  // Returns the plan with which some ranks of `first` go on without the others: `members` are their
  // ranks there, ascending, and their order gives the new ranks. The slices are those of `first`.
  // Members keep those that they serve; those of lost servers are dealt to the servers that are
  // left. REQUIRES: every rank of `first` trains; `members` is not empty.
  static Plan continued(const Plan& first, Epoch epoch, std::span<const Rank> members);

  const PlanSpec& spec() const { return spec_; }
  Epoch epoch() const { return spec_.epoch; }
  const Model& model() const { return spec_.model; }
  const Roles& roles() const { return spec_.roles; }

  std::span<const Slice> slices() const { return slices_; }  // index = SliceId
  const Slice& slice(SliceId id) const { return slices_[index(id)]; }
  std::span<const Slice> slicesOf(TensorId tensor) const;  // by offset; never empty
  std::vector<SliceId> slicesOn(Rank server) const;        // by id
  uint64_t bytesOf(const Slice& slice) const {
    return slice.count * sizeOf(model()[slice.tensor].dtype);
  }

  const Hash& hash() const { return hash_; }  // of the spec and of the slices
  std::string toString()
      const;  // "plan 1a2b3c4d: algorithm sluice, 161 tensors, .., 644 slices sharded over .."

  friend bool operator==(const Plan& a, const Plan& b) {
    return a.spec_ == b.spec_ && a.slices_ == b.slices_;
  }

 private:
  Plan(PlanSpec spec, std::vector<Slice> slices);

  PlanSpec spec_;
  std::vector<Slice> slices_;
  std::vector<uint32_t> firstSlice_;  // of each tensor, and the end
  Hash hash_;
};

// The same spec gives the same bytes on every machine. deserialise checks every length and limit,
// and accepts only bytes that serialise gives.
std::vector<std::byte> serialise(const PlanSpec& spec);
Result<PlanSpec> deserialise(std::span<const std::byte> bytes);

// Names the first thing in which rank `other`'s plan differs from ours, in one line: "tensor 3
// 'conv1.weight' has 9408 elements here, 9216 on rank 2". Empty if nothing differs.
std::string firstDifference(const PlanSpec& ours, const PlanSpec& theirs, Rank other);
std::string firstDifference(const Plan& ours, const Plan& theirs, Rank other);

}  // namespace sluice::plan

namespace sluice {
using plan::Plan;
using plan::PlanSpec;
}  // namespace sluice
