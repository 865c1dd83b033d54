// The time that a host's loop needs for its work. A plain value; zeros leave the host's cost out.
#pragma once

#include <cstdint>

#include <string_view>

#include <sluice/base/clock.h>
#include <sluice/base/status.h>

namespace sluice::sim {

struct HostCosts {
  double messageSent = 0;  // nanoseconds each
  double messageReceived = 0;
  double byteSent = 0;  // the same, with its copy and its seal
  double byteReceived = 0;
  double byteSummed = 0;   // one worker's part into the sum
  double byteUpdated = 0;  // the optimizer's step

  bool isFree() const { return *this == HostCosts{}; }
  Duration sent(uint64_t bytes) const { return time(messageSent, byteSent, bytes); }
  Duration received(uint64_t bytes) const { return time(messageReceived, byteReceived, bytes); }
  Duration summed(uint64_t bytes) const { return time(0, byteSummed, bytes); }
  Duration updated(uint64_t bytes) const { return time(0, byteUpdated, bytes); }

  friend bool operator==(const HostCosts&, const HostCosts&) = default;

 private:
  static Duration time(double each, double perByte, uint64_t bytes) {
    return Duration(static_cast<Duration::rep>(each + perByte * static_cast<double>(bytes)));
  }
};

// The costs by name: plain (TCP) or encrypted (TLS), as host_costs.json has them, or free. A path
// names a file of the same form; "costs.json:encrypted" takes its other half.
Result<HostCosts> parseCosts(std::string_view text);

// Reads the object `which`, plain or encrypted, of such a file's content.
Result<HostCosts> readCosts(std::string_view json, std::string_view which);

}  // namespace sluice::sim
