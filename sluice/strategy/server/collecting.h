// Synchronous training over sharded parameter servers: the engine behind kvstore, slicing, p3 and
// sluice, which differ only in how they cut, order and answer.
//
//   worker   gradientReady -> push each slice to its server
//   server   collect all workers' parts -> reduce -> update -> answer
//   worker   result of the last slice of a tensor is here -> open its gate
#pragma once

#include <memory>

#include <sluice/queue/egress.h>
#include <sluice/strategy/strategy.h>

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

Result<std::unique_ptr<Strategy>> makeParameterServer(const Rooms& rooms, const ServerStyle& style);

}  // namespace sluice::strategy
