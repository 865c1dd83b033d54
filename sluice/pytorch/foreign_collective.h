// The engine of collectives on the user's own process group of torch.distributed: Gloo, or NCCL by
// the same code. NCCL has not been run here. A module reaches the group through the table (table.h),
// and reduces in memory of its own, since c10d has no way to take a call back. It belongs to the
// loop of its user; the group's threads only post to that loop.
//
// It has no codecs, which would have to sit inside the reduction. All methods are the group's only
// one.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <sluice/base/loop.h>
#include <sluice/base/mutex.h>
#include <sluice/data/collective/collective.h>
#include <sluice/pytorch/table.h>

namespace sluice::pytorch {

class ForeignCollective final : public collective::Collective {
 public:
  // REQUIRES: `loop`, and what `group` refers to, outlive this.
  ForeignCollective(Loop& loop, const table::ProcessGroup& group);
  // Waits until the loop no longer uses this. REQUIRES: not on the loop; the caller holds no lock
  // that the group needs (Python's GIL).
  ~ForeignCollective() override;

  void allReduce(const collective::Call& call, const collective::ReductionOptions& reduction,
                 collective::Done done) override;
  // Gives more than is asked for, the whole sum: c10d scatters equal parts only.
  void reduceScatter(const collective::Call& call, const collective::ReductionOptions& reduction,
                     collective::Done done) override {
    allReduce(call, reduction, std::move(done));
  }
  void allGather(const collective::Call& call, collective::Done done) override;
  void broadcast(const collective::Call& call, Rank root, collective::Done done) override;
  void fail(const Status& why) override;
  std::string describeWait(const collective::Ticket& ticket) const override;

 private:
  // A contiguous part of the data that one call to the group works on.
  struct Piece {
    std::span<std::byte> place;
    void* result;
    std::shared_ptr<void> owner;
  };
  struct Underway {
    std::vector<Piece> pieces;
    size_t left;
    collective::Done done;
  };
  // Calls the group for one piece. `launch` gets the memory, and what to call at the end.
  template <typename Launch>
  Result<Piece> begin(const collective::Ticket& ticket, std::span<std::byte> place,
                      Launch&& launch);
  void follow(const collective::Ticket& ticket, std::vector<Piece> pieces, collective::Done done);
  void ended(const collective::Ticket& ticket, const Status& status);

  Loop& loop_;
  const table::ProcessGroup group_;
  std::map<collective::Ticket, Underway> underway_;
  Status error_;
  // Holds null once this is gone: later news from the group's threads is then ignored.
  const std::shared_ptr<base::Guarded<ForeignCollective*>> self_;
};

}  // namespace sluice::pytorch
