// The papers' baseline, MXNet's KVStore: whole layers, first come first served, and a result travels only
// after the server has told everybody and everybody has asked for it.
#include <sluice/strategy/algorithms.h>
#include <sluice/strategy/parameter_server.h>

namespace sluice::strategy {
namespace {

Status chooseKvstore(const Config&, plan::PlanSpec& spec) {
  spec.slicing.placement = plan::Placement::kKvstore;
  return base::ok();
}

Result<std::unique_ptr<Strategy>> makeKvstore(const Rooms& rooms) {
  return makeParameterServer(rooms,
                             {.answer = Answer::kNotifyAndPull, .egress = {.order = queue::Order::kFifo}});
}

}  // namespace

const Algorithm kKvstore{"kvstore", "whole layers, fifo, notify and pull (the papers' baseline)",
                         chooseKvstore, makeKvstore};

}  // namespace sluice::strategy
