// The engine on the user's own process group of torch.distributed: Gloo, or NCCL by the same code.
// NCCL has not been run here. The engine reduces in memory of its own, since c10d has no way to
// take a call back. It belongs to the loop of its user; the group's threads only post to that loop.
//
// It has no codecs, which would have to sit inside the reduction. All methods are the group's only
// one.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <sluice/base/loop.h>
#include <sluice/base/mutex.h>
#include <sluice/data/collective/collective.h>

namespace sluice::pytorch {

class C10dCollective final : public collective::Collective {
 public:
  using GroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;

  // REQUIRES: `loop` outlives this.
  C10dCollective(Loop& loop, GroupPtr group);
  ~C10dCollective() override;  // not on the loop

  // Waits until the loop no longer uses this. The destructor does so too. A caller that holds a
  // lock that the group needs (Python's GIL) calls this first, without that lock. A second call
  // does nothing.
  void detach();

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
    at::Tensor tensor;
    c10::intrusive_ptr<c10d::Work> work;
  };
  struct Underway {
    std::vector<Piece> pieces;
    size_t left;
    collective::Done done;
  };
  // Calls the group, and returns its errors as values.
  Status launch(
      Piece& piece,
      const std::function<c10::intrusive_ptr<c10d::Work>(std::vector<at::Tensor>&)>& call);
  void follow(const collective::Ticket& ticket, std::vector<Piece> pieces, collective::Done done);
  void ended(const collective::Ticket& ticket, const Status& status);

  Loop& loop_;
  const GroupPtr group_;
  bool isDetached_ = false;
  std::map<collective::Ticket, Underway> underway_;
  Status error_;
  // Holds null once this is gone: later news from the group's threads is then ignored.
  const std::shared_ptr<base::Guarded<C10dCollective*>> self_;
};

}  // namespace sluice::pytorch
