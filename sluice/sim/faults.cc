#include <sluice/sim/faults.h>

#include <chrono>

#include <fmt/format.h>

#include <sluice/base/text.h>
#include <sluice/base/units.h>
#include <sluice/sim/random.h>

namespace sluice::sim {
namespace {

constexpr Duration kLongestCut = std::chrono::milliseconds(20);

Result<Fault> parseFault(std::string_view text) {
  const Status bad(Code::kInvalidArgument,
                   fmt::format("'{}' is no fault; write cut:HOST@TIME+LENGTH, as cut:3@200ms+50ms, "
                               "or lose:HOST@TIME, as lose:5@1s",
                               text));
  const size_t colon = text.find(':');
  const size_t at = text.find('@');
  if (colon == std::string_view::npos || at == std::string_view::npos || at < colon) return bad;
  const std::string_view kind = text.substr(0, colon);
  const auto host = base::parseInteger(text.substr(colon + 1, at - colon - 1));
  const std::string_view when = text.substr(at + 1);
  const size_t plus = when.find('+');
  const bool isCut = kind == "cut";
  if (!isCut && kind != "lose") return bad;
  if (isCut != (plus != std::string_view::npos)) return bad;
  const auto begin = base::parseDuration(when.substr(0, plus));
  const auto length = isCut ? base::parseDuration(when.substr(plus + 1)) : Duration{};
  if (!host.isOk() || !begin.isOk() || !length.isOk() || *host < 0 || *host > UINT32_MAX)
    return bad;
  return Fault{isCut ? Fault::Kind::kLinkCut : Fault::Kind::kHostLost, static_cast<uint32_t>(*host),
               *begin, *length};
}

}  // namespace

Result<std::vector<Fault>> parseFaults(std::string_view text) {
  std::vector<Fault> faults;
  if (text.empty()) return faults;
  for (const auto piece : base::split(text, ',')) {
    SLUICE_ASSIGN_OR_RETURN(faults.emplace_back(), parseFault(base::trim(piece)));
  }
  return faults;
}

std::vector<Fault> drawCuts(uint64_t seed, uint32_t count, uint32_t hosts, Duration within) {
  Random chance(seed ^ 0xfa017U);  // other numbers than the network draws
  const auto part = [&](Duration all) {
    return Duration(
        static_cast<Duration::rep>(static_cast<double>(all.count()) * chance.uniform()));
  };
  std::vector<Fault> cuts;
  for (uint32_t i = 0; i < count; ++i) {
    const auto host = static_cast<uint32_t>(chance.uniform() * hosts);
    const Duration at = part(within);
    cuts.push_back({Fault::Kind::kLinkCut, host, at, part(kLongestCut)});
  }
  return cuts;
}

}  // namespace sluice::sim
