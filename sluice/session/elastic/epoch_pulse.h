// The pulse of the job, by the ranks of an epoch: the job's own knows members by their first ranks.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include <sluice/base/mutex.h>
#include <sluice/transport/fabric/watch/pulse.h>

namespace sluice::session {

class EpochPulse final : public fabric::Pulse {
 public:
  // `pulse` may be null: then nobody says how busy it is. REQUIRES: it outlives this.
  explicit EpochPulse(fabric::Pulse* pulse) : pulse_(pulse) {}

  // From now on ranks are those of an epoch: `members` are their first ranks.
  void enter(std::vector<Rank> members) {
    members_.with([&](std::vector<Rank>& here) { here = std::move(members); });
  }

  void exchangeWith(Rank peer) override {
    if (const auto member = memberAt(peer)) pulse_->exchangeWith(*member);
  }
  std::optional<Word> lastWord(Rank peer) const override {
    const auto member = memberAt(peer);
    return member ? pulse_->lastWord(*member) : std::nullopt;
  }

 private:
  std::optional<Rank> memberAt(Rank rank) const {
    return members_.with([&](const std::vector<Rank>& here) -> std::optional<Rank> {
      if (pulse_ == nullptr || index(rank) >= here.size()) return std::nullopt;
      return here[index(rank)];
    });
  }

  fabric::Pulse* const pulse_;
  base::Guarded<std::vector<Rank>> members_;
};

}  // namespace sluice::session
