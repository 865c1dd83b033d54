// Tells how busy the loops of other ranks are, and what their training threads do. A rank has one loop for everything, heartbeats
// included: while it works on one long task, its fabric is as silent as that of a dead process. So
// each process has a second, small thread that tells the other ranks that the process lives and for
// how long its loop has been busy. watchman.h asks it before it gives up on a silent rank;
// pulse_thread.h is the real pulse.
#pragma once

#include <optional>

#include <sluice/base/clock.h>
#include <sluice/base/ids.h>
#include <sluice/base/whereabouts.h>

namespace sluice::fabric {

// Any thread may call all of it.
class Pulse {
 public:
  struct Word {
    TimePoint heard;               // by our clock
    Duration busy{};               // for how long the peer's loop had not turned then
    base::Whereabouts training{};  // of the peer's training thread then
  };

  virtual ~Pulse() = default;

  // Makes this rank and `peer` tell each other from now on how busy they are.
  virtual void exchangeWith(Rank peer) = 0;

  // Returns the last word of the peer; empty if it has said nothing, and once it has left or its
  // pulse is lost.
  virtual std::optional<Word> lastWord(Rank peer) const = 0;
};

}  // namespace sluice::fabric
