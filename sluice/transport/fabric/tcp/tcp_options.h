// The knobs of the tcp engine. A value.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include <sluice/base/clock.h>
#include <sluice/transport/wire/payload_check.h>

namespace sluice::fabric {

// kAuto: between hosts yes, on loopback addresses no. kIntegrity: a tag behind every payload, which
// stays readable.
enum class Encrypt { kAuto, kOn, kIntegrity, kOff };

struct TcpOptions {
  Encrypt encrypt = Encrypt::kAuto;
  // The check behind payloads that are neither encrypted nor have a tag.
  wire::PayloadCheckKind payloadCheck = wire::PayloadCheckKind::kCrc32c;
  bool insecure =
      false;  // the user has said that no stranger can reach the ports: no job key is needed

  std::string congestionControl;  // as the kernel names it; empty: the machine's own
  size_t shrink = 1;              // for measurements: the kernel's buffers are divided by it

  // Strangers: connections that have not yet proved the job key (door/doorman.h).
  Duration handshakeDeadline = std::chrono::seconds(5);
  size_t maxStrangers = 256;  // the oldest goes when one more comes

  // connectDeadline covers all attempts to connect to a peer.
  Duration connectDeadline = std::chrono::seconds(10);
  Duration closeDeadline = std::chrono::seconds(2);
};

}  // namespace sluice::fabric
