// This process in one process group of torch.distributed: the job of the group's ranks, proven by
// the job key, and the connections between them. The backend (backend/) is built on it. It knows
// nothing of Torch.
//
// Thread safety: any thread but the job's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <sluice/base/config.h>
#include <sluice/base/fork.h>
#include <sluice/base/mutex.h>
#include <sluice/data/collective/communicator.h>
#include <sluice/data/collective/method_costs.h>

namespace sluice::pytorch {

class GroupCommunicator final {
 public:
  // Meets the group's other ranks, as `environment` says (RANK and its like are those of the
  // group), and returns when all have connected to each other, within `atMost`. `interruption` is
  // called meanwhile, so that Ctrl-C ends the wait. `published` is as in session::JobParts::join().
  static Result<std::shared_ptr<GroupCommunicator>> join(
      const base::Config::Values& options, const base::Config::Values& environment, Duration atMost,
      std::function<Status()> interruption, const std::function<Status(uint16_t)>& published = {});
  ~GroupCommunicator();

  // Returns the address at which other ranks reach this one: the one on the way to MASTER_ADDR,
  // unless an address is pinned.
  static Result<std::string> ownAddress(const base::Config::Values& options,
                                        const base::Config::Values& environment,
                                        const std::function<Status()>& interruption = {});

  // Runs `call` on the loop. Returns an error once this has left, and in a forked child.
  Status submit(std::function<void(collective::Communicator&)> call);

  // Leaves in good order. Calls under way end with an error. A second call, and a call in a forked
  // child, does nothing.
  void leave();

  Rank rank() const { return rank_; }
  uint32_t worldSize() const { return worldSize_; }
  size_t stagingBytes() const { return stagingBytes_; }  // of pinned memory for a device
  collective::Method methodFor(size_t bytes) const;      // as collective and collective-costs say

 private:
  struct Place;
  using PlacePtr = base::HomePtr<Place>;
  GroupCommunicator(PlacePtr place, std::vector<collective::MethodCost> methods,
                    size_t stagingBytes);

  const Rank rank_;
  const uint32_t worldSize_;
  const std::vector<collective::MethodCost> methods_;  // the only one, or several to choose from
  const size_t stagingBytes_;
  const base::ProcessMark process_;
  base::Guarded<PlacePtr> place_;  // null once this has left
};

}  // namespace sluice::pytorch
