// The checkpoint of an answering engine (answering.h): a worker asks every server what it holds,
// and saves it with its own state. Other workers go on meanwhile: the state is as consistent as
// what a worker reads in a step, each slice by itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <vector>

#include <sluice/algorithms/facets.h>
#include <sluice/algorithms/server/answering_parts.h>
#include <sluice/algorithms/server/answering_server.h>

namespace sluice::algorithms {

class AnsweringCheckpoint final : public Checkpoint {
 public:
  AnsweringCheckpoint(AnsweringParts& parts, const AnsweringServer& server)
      : parts_(parts), server_(server) {}

  void prepare(const Done& done) override;
  Result<std::vector<std::byte>> take() override;
  Status restore(std::span<const std::byte> bytes) override;

  // Takes a server's answer, as fabric::Receiver::onMessage does. Fabric's loop.
  Result<fabric::Landing> landHeld(const plan::Slice& slice, Rank from, const wire::Header& header);
  void fail(const Status& why);

 private:
  void ask(const plan::Slice& slice);
  void heldIsHere(const plan::Slice& slice, const std::vector<std::byte>& bytes);
  void keepHeld(const plan::Slice& slice, const HeldCentre::Held& held,
                std::vector<SavedTensor>& tensors) const;
  Status restoreCentre(TensorId tensor, const SavedTensor& saved);
  void restoreWorker(TensorId tensor, const SavedTensor* saved, bool isOurs);
  bool hasCentre() const { return parts_.policy->centre() != nullptr; }

  AnsweringParts& parts_;
  const AnsweringServer& server_;
  Done whenPrepared_;  // null: no checkpoint is being made
  std::map<SliceId, uint32_t>
      asked_;  // answers that servers owe, also to a checkpoint that was given up
  std::set<SliceId> missing_;
  std::vector<SavedTensor> held_;  // by TensorId, as far as servers have told; take() takes it
};

}  // namespace sluice::algorithms
