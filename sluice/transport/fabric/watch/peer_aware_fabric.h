// A fabric that also knows its peers' clocks, and whether they are busy.
#pragma once

#include <optional>

#include <sluice/transport/fabric/fabric.h>
#include <sluice/transport/fabric/watch/clock_offset.h>

namespace sluice::fabric {

class PeerAwareFabric : public Fabric {
 public:
  // Empty until heartbeats have gone back and forth. Loop thread only.
  virtual std::optional<ClockOffset> clockOffset(Rank peer) const = 0;

  // For how long the peer's loop has not turned, if it says that it is busy. Loop thread only.
  virtual std::optional<Duration> busyFor(Rank peer) const = 0;
};

}  // namespace sluice::fabric
