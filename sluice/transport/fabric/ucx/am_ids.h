// The ids of our active messages. Both ends must agree: part of the protocol.
#pragma once

#include <sluice/transport/wire/header.h>

namespace sluice::fabric::ucx {

constexpr unsigned dataId(wire::Lane lane) {
  return static_cast<unsigned>(lane);
}
// With this id a receiver says: "All messages of this lane before that number are taken."
constexpr unsigned takenId(wire::Lane lane) {
  return wire::kLanes + static_cast<unsigned>(lane);
}

// "I have given you up": closing an endpoint does not close a connection that the other side uses,
// too.
inline constexpr unsigned kGivenUpId = 2 * wire::kLanes;
inline constexpr wire::Flags kGivenUpFlags = wire::Flags::kTaken | wire::Flags::kGoodbye;

}  // namespace sluice::fabric::ucx
