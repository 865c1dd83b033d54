// Keeps the lanes on which a receiver has put a message off, until it offers them again.
#pragma once

#include <set>
#include <utility>

#include <sluice/transport/fabric/fabric.h>

namespace sluice::fabric {

class DeferredLanes final {
 public:
  // Returns the answer that puts off the message which the receiver has just been offered.
  Landing defer(Rank from, Lane lane) {
    lanes_.emplace(from, lane);
    return Landing::later();
  }

  // Has every message offered again that was put off. The receiver may put it off once more.
  void resume(Fabric& fabric) {
    for (const auto& [from, lane] : std::exchange(lanes_, {})) fabric.resume(from, lane);
  }

  // Has the messages of one rank offered again.
  void resume(Fabric& fabric, Rank from) {
    const auto begin = lanes_.lower_bound({from, Lane{}});
    auto end = begin;
    while (end != lanes_.end() && end->first == from) ++end;
    const std::set<std::pair<Rank, Lane>> ofOne(begin, end);
    lanes_.erase(begin, end);
    for (const auto& [rank, lane] : ofOne) fabric.resume(rank, lane);
  }

 private:
  std::set<std::pair<Rank, Lane>> lanes_;
};

}  // namespace sluice::fabric
