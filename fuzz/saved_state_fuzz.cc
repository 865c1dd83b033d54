// Checkpoints as any bytes at all, since a file may be damaged: the state of training by
// all-reduce, of servers that do not wait, and of servers' optimizers; and a server's message with
// its slice. An accepted state must come out the same when it is saved again.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include <sluice/algorithms/reduction/reduction_state.h>
#include <sluice/algorithms/server/centre_state.h>
#include <sluice/algorithms/server/held_slice.h>
#include <sluice/data/optimizer/optimizer_state.h>
#include <sluice/data/shard/served_state.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto mustBe = [&](const std::vector<std::byte>& again) {
    if (!std::ranges::equal(again, bytes)) std::abort();
  };
  if (const auto state = algorithms::ReductionState::fromBytes(bytes); state.isOk())
    mustBe(state->toBytes());
  if (const auto state = algorithms::CentreState::fromBytes(bytes); state.isOk())
    mustBe(state->toBytes());
  if (const auto state = optimizer::OptimizerState::fromBytes(bytes); state.isOk())
    mustBe(state->toBytes());
  if (const auto states = shard::servedStatesFromBytes(bytes); states.isOk())
    mustBe(shard::toBytes(*states));
  if (const auto held = algorithms::readHeldSlice(bytes); held.isOk())
    mustBe(
        algorithms::packHeldSlice(held->parameters, held->optimizer ? &*held->optimizer : nullptr));
  return 0;
}
