// Quantities as people write them: "250ms", "1.5s", "64KiB", "1gbit". Parsing returns a Status that
// says what is accepted; printing gives back what parsing takes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <sluice/base/clock.h>
#include <sluice/base/status.h>

namespace sluice::base {

// Bits per second on the wire.
struct Rate {
  uint64_t bitsPerSecond = 0;
  friend bool operator==(const Rate&, const Rate&) = default;
};

Result<Duration> parseDuration(
    std::string_view text);  // ns, us, ms, s, min, h; a bare number is seconds
Result<uint64_t> parseBytes(
    std::string_view text);  // B, KB, MB, GB (1000), KiB, MiB, GiB (1024); bare: bytes
// bit, kbit, mbit, gbit (1000), as tc writes them; also bytes a second: B/s, KB/s, MB/s, GB/s
Result<Rate> parseRate(std::string_view text);
Result<int64_t> parseInteger(std::string_view text);
Result<double> parseNumber(std::string_view text);
Result<bool> parseSwitch(std::string_view text);  // on, off, true, false, yes, no, 1, 0

std::string formatDuration(Duration d);   // "250ms": rounded to three digits, or to seconds
std::string formatBytes(uint64_t bytes);  // "1.5 MiB": for people
std::string formatRate(Rate rate);        // "1gbit": as tc takes it

}  // namespace sluice::base

namespace sluice {
using base::Rate;
}  // namespace sluice
