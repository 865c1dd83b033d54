#include <tools/sim/faults.h>

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include <sluice/base/text.h>
#include <tools/sim/random.h>

namespace sluice::sim {
namespace {

constexpr Duration kLongestCut = std::chrono::milliseconds(20);

// Returns the text before the mark, and removes both from `text`; all of it if there is no mark.
std::string_view takeUntil(char mark, std::string_view& text) {
  const std::string_view before = text.substr(0, text.find(mark));
  text.remove_prefix(std::min(text.size(), before.size() + 1));
  return before;
}

// Reads KIND:HOST[=RATE]@TIME[+LENGTH]. The kind decides which parts are there.
Result<PlannedFault> parseFault(std::string_view text) {
  const Status bad(Code::kInvalidArgument,
                   fmt::format("invalid fault '{}'; use cut:HOST@TIME+LENGTH, as cut:3@200ms+50ms, "
                               "rate:HOST=RATE@TIME+LENGTH, as rate:3=100mbit@200ms+5s, or "
                               "lose:HOST@TIME, as lose:5@1s",
                               text));
  std::string_view when = text;
  std::string_view which = takeUntil('@', when);
  const std::string_view kind = takeUntil(':', which);
  std::string_view rateText = which;
  const auto host = base::parseInteger(takeUntil('=', rateText));
  std::string_view lengthText = when;
  const auto at = base::parseDuration(takeUntil('+', lengthText));
  if (!host.isOk() || *host < 0 || *host > UINT32_MAX || !at.isOk()) return bad;

  PlannedFault fault{.host = static_cast<uint32_t>(*host), .at = *at};
  if (kind == "cut") {
    fault.kind = PlannedFault::Kind::kLinkCut;
  } else if (kind == "rate") {
    fault.kind = PlannedFault::Kind::kLinkRate;
  } else if (kind == "lose") {
    fault.kind = PlannedFault::Kind::kHostLost;
  } else {
    return bad;
  }
  if ((fault.kind == PlannedFault::Kind::kLinkRate) == rateText.empty()) return bad;
  if ((fault.kind == PlannedFault::Kind::kHostLost) != lengthText.empty()) return bad;
  if (!rateText.empty()) {
    const auto rate = base::parseRate(rateText);
    if (!rate.isOk() || rate->bitsPerSecond == 0) return bad;
    fault.rate = *rate;
  }
  if (!lengthText.empty()) {
    const auto length = base::parseDuration(lengthText);
    if (!length.isOk()) return bad;
    fault.length = *length;
  }
  return fault;
}

}  // namespace

Result<std::vector<PlannedFault>> parseFaults(std::string_view text) {
  std::vector<PlannedFault> faults;
  if (text.empty()) return faults;
  for (const auto piece : base::split(text, ',')) {
    SLUICE_ASSIGN_OR_RETURN(faults.emplace_back(), parseFault(base::trim(piece)));
  }
  return faults;
}

std::vector<PlannedFault> drawCuts(uint64_t seed, uint32_t count, uint32_t hosts, Duration within) {
  Random chance(seed ^ 0xfa017U);  // other numbers than the network draws
  const auto part = [&](Duration all) {
    return Duration(
        static_cast<Duration::rep>(static_cast<double>(all.count()) * chance.uniform()));
  };
  std::vector<PlannedFault> cuts;
  for (uint32_t i = 0; i < count; ++i) {
    const auto host = static_cast<uint32_t>(chance.uniform() * hosts);
    const Duration at = part(within);
    cuts.push_back({.host = host, .at = at, .length = part(kLongestCut)});
  }
  return cuts;
}

}  // namespace sluice::sim
