// A fault that the doctor has found, in words for people and with a code for programs. Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::doctor {

// The codes of docs/doctor.md.
enum class Fault {
  kBlockedPort,
  kWrongInterface,
  kWrongKey,
  kOtherVersion,
  kOtherTorch,
  kOtherSettings,
  kResolver,
  kMtuHole,
  kSlowDirection,
  kSlowLink,
  kPacketLoss,
  kOverfilledQueue,
  kStarvedCpu,
  kSmallBuffers,
  kClockOff,
  kSlowRank,
};
constexpr std::string_view name(Fault fault) {
  switch (fault) {
    case Fault::kBlockedPort: return "blocked-port";
    case Fault::kWrongInterface: return "wrong-interface";
    case Fault::kWrongKey: return "wrong-key";
    case Fault::kOtherVersion: return "other-version";
    case Fault::kOtherTorch: return "other-torch";
    case Fault::kOtherSettings: return "other-settings";
    case Fault::kResolver: return "resolver";
    case Fault::kMtuHole: return "mtu-hole";
    case Fault::kSlowDirection: return "slow-direction";
    case Fault::kSlowLink: return "slow-link";
    case Fault::kPacketLoss: return "packet-loss";
    case Fault::kOverfilledQueue: return "overfilled-queue";
    case Fault::kStarvedCpu: return "starved-cpu";
    case Fault::kSmallBuffers: return "small-buffers";
    case Fault::kClockOff: return "clock-off";
    case Fault::kSlowRank: return "slow-rank";
  }
  return "?";
}

inline constexpr std::string_view kMtuRemedy =
    "Set the same MTU on all interfaces and switches of the way (ip link set dev IFACE mtu 1400 "
    "tries it), and let ICMP 'fragmentation needed' through.";

struct Finding {
  Fault fault{};
  std::vector<uint32_t> ranks;  // that it concerns
  std::string evidence;         // a sentence with the numbers
  std::string remedy;           // a sentence that says what to do
};

}  // namespace sluice::doctor
