// The sender's own bits of the headers that members send while an epoch begins (wire/header.h).
// Their stage is kReady, which no message of an algorithm has.
#pragma once

#include <sluice/transport/wire/header.h>

namespace sluice::algorithms::elastic {

inline constexpr auto kReport = wire::Flags{0x0100};      // the results that the sender has
inline constexpr auto kHandedOver = wire::Flags{0x0200};  // a result that the receiver lacks

}  // namespace sluice::algorithms::elastic
