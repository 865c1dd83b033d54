// Checkpoints as any bytes at all, since a file may be damaged: the state of training by
// all-reduce, of servers that do not wait, and of servers' optimizers; and a server's message with
// its slice. An accepted state must come out the same when it is saved again.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include <sluice/optimizer/optimizer_state.h>
#include <sluice/shard/served_state.h>
#include <sluice/strategy/reduction/reduction_state.h>
#include <sluice/strategy/server/centre_state.h>
#include <sluice/strategy/server/held_slice.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto mustBe = [&](const std::vector<std::byte>& again) {
    if (!std::ranges::equal(again, bytes)) std::abort();
  };
  if (const auto state = strategy::ReductionState::fromBytes(bytes); state.isOk())
    mustBe(state->toBytes());
  if (const auto state = strategy::CentreState::fromBytes(bytes); state.isOk())
    mustBe(state->toBytes());
  if (const auto state = optimizer::OptimizerState::fromBytes(bytes); state.isOk())
    mustBe(state->toBytes());
  if (const auto states = shard::servedStatesFromBytes(bytes); states.isOk())
    mustBe(shard::toBytes(*states));
  if (const auto held = strategy::readHeldSlice(bytes); held.isOk())
    mustBe(
        strategy::packHeldSlice(held->parameters, held->optimizer ? &*held->optimizer : nullptr));
  return 0;
}
