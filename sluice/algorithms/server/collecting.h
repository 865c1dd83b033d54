// Synchronous training over sharded parameter servers: the engine behind kvstore, slicing, p3 and
// sluice, which differ only in how they cut, order and answer.
//
//   worker   contribute -> push each slice to its server                (collecting_worker.h)
//   server   collect all workers' parts -> reduce -> update -> answer   (collecting_server.h)
//   worker   result of the last slice of a tensor is here -> open its gate
#pragma once

#include <memory>

#include <sluice/algorithms/context.h>
#include <sluice/algorithms/strategy.h>
#include <sluice/transport/queue/egress.h>

namespace sluice::algorithms {

enum class Answer {
  kBroadcast,           // the server sends the result to every worker at once
  kNotifyAndPull,       // it tells every worker, which pulls a tensor once the last of its parts is
                        // notified: MXNet's KVStore
  kNotifyAndPullParts,  // the same, but a part is pulled at its own notice
};

struct ServerStyle {
  Answer answer = Answer::kBroadcast;
  queue::EgressOptions egress;
};

Result<std::unique_ptr<Strategy>> makeCollecting(const Context& context, const ServerStyle& style);

}  // namespace sluice::algorithms
