// Synchronous training over sharded parameter servers: the engine behind kvstore, slicing, p3 and
// sluice, which differ only in how they cut, order and answer.
//
//   worker   contribute -> push each slice to its server                (collecting_worker.h)
//   server   collect all workers' parts -> reduce -> update -> answer   (collecting_server.h)
//   worker   result of the last slice of a tensor is here -> open its gate
#pragma once

#include <memory>

#include <sluice/base/option.h>
#include <sluice/queue/egress.h>
#include <sluice/strategy/context.h>
#include <sluice/strategy/strategy.h>

namespace sluice::base::option {
inline constexpr Option kNoOverlap = sameOnAllRanks(
    {"no-overlap", Kind::kSwitch, "off",
     "kvstore: push everything after backward, and begin forward when everything is back (the "
     "papers' PS-Sync)"});
}  // namespace sluice::base::option

namespace sluice::strategy {

enum class Answer {
  kBroadcast,      // the server sends the result to every worker at once
  kNotifyAndPull,  // it tells every worker, and answers each one's pull: MXNet's KVStore
};

struct ServerStyle {
  Answer answer = Answer::kBroadcast;
  queue::EgressOptions egress;
  // False: nothing is pushed before backward has ended, and no gate opens before all may.
  bool overlaps = true;
};

Result<std::unique_ptr<Strategy>> makeCollecting(const Context& context, const ServerStyle& style);

}  // namespace sluice::strategy
