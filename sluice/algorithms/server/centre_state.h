// The checkpoint of a worker under asp, ssp, easgd or DGC: a plain value, keyed by tensor name. Any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sluice/base/status.h>
#include <sluice/data/optimizer/optimizer_spec.h>
#include <sluice/data/plan/plan.h>

namespace sluice::algorithms {

// Optimizer states of a tensor's slices, by the first element of each slice.
using StateBySlice = std::map<uint64_t, optimizer::OptimizerState>;

struct SavedTensor {
  std::string name{};
  // What the servers held of the tensor. Every rank that saves writes it alike, so any one file is
  // enough.
  std::vector<std::byte> centre{};  // parameters; empty: servers hold nothing
  StateBySlice served{};
  // What the rank that saves held itself. Only this rank gets it back.
  std::vector<std::byte>
      own{};  // parameters; empty: they are the centre's, or the caller's to save
  std::vector<std::byte> residual{};  // of DGC, f32; empty without DGC
  std::vector<std::byte> velocity{};  // likewise
  StateBySlice local{};

  friend bool operator==(const SavedTensor&, const SavedTensor&) = default;
};

struct CentreState {
  uint32_t rank = 0;
  uint64_t steps = 0;  // of that rank, which DGC's warm-up goes by
  std::vector<SavedTensor> tensors{};

  std::vector<std::byte> toBytes() const;
  static Result<CentreState> fromBytes(
      std::span<const std::byte> bytes);  // believes nothing it reads

  // Reads a state and checks it against plan and optimizer; empty input is the initial state.
  static Result<CentreState> readFor(const plan::Plan& plan, const optimizer::Optimizer& optimizer,
                                     std::span<const std::byte> bytes);

  // Returns the saved state of a tensor; null if it is not there.
  const SavedTensor* find(std::string_view name) const;

  // Rejects a state of another model, cut in another way, or of another optimizer.
  Status check(const plan::Plan& plan, const optimizer::Optimizer& optimizer) const;

  friend bool operator==(const CentreState&, const CentreState&) = default;
};

// The part of a checkpoint that is a worker's own.
class OwnState {
 public:
  virtual ~OwnState() = default;
  virtual void save(TensorId tensor, SavedTensor& saved) const = 0;
  // Puts a tensor's state back; null begins anew. REQUIRES: a state that was checked.
  virtual void restore(TensorId tensor, const SavedTensor* saved) = 0;
  virtual uint64_t steps() const = 0;
  virtual void setSteps(uint64_t steps) = 0;
};

// Warns that a rank goes on from another's checkpoint.
void warnOfOthers(Rank self, Rank saver);

// Returns the state of one slice; null if it was not saved.
const optimizer::OptimizerState* findState(const StateBySlice& states, const plan::Slice& slice);

}  // namespace sluice::algorithms
