#include <tools/bench/unevenness.h>

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include <sluice/base/random.h>
#include <sluice/base/text.h>
#include <sluice/base/units.h>

namespace sluice::bench {
namespace {

// "0.1:3x" -> 0.1 and 3.
Result<std::pair<double, double>> parsePair(std::string_view flag, std::string_view text) {
  const Status wrong{Code::kInvalidArgument,
                     fmt::format("{} '{}' should read HOW-MANY:FACTORx, as {}", flag, text,
                                 flag == "--straggler" ? "1:3x" : "0.1:3x")};
  const auto parts = base::split(text, ':');
  if (parts.size() != 2 || !parts[1].ends_with('x')) return wrong;
  const auto share = base::parseNumber(parts[0]);
  const auto factor = base::parseNumber(parts[1].substr(0, parts[1].size() - 1));
  if (!share.isOk() || !factor.isOk() || !(*share > 0) || !(*factor >= 1)) return wrong;
  return std::pair(*share, *factor);
}

}  // namespace

double Unevenness::factor(uint32_t worker, uint32_t workers, uint64_t step) const {
  double factor = 1;
  if (worker + stragglers >= workers) factor *= stragglerFactor;
  if (jitterPeriod > 0) {
    const uint64_t slow =
        base::splitmix64(base::splitmix64(worker) + step / jitterPeriod) % jitterPeriod;
    if (step % jitterPeriod == slow) factor *= jitterFactor;
  }
  return factor;
}

Result<Unevenness> parseUnevenness(std::string_view straggler, std::string_view jitter) {
  Unevenness unevenness;
  if (!straggler.empty()) {
    SLUICE_ASSIGN_OR_RETURN(const auto pair, parsePair("--straggler", straggler));
    if (pair.first != std::floor(pair.first)) {
      return Status(
          Code::kInvalidArgument,
          fmt::format("--straggler '{}': the number of workers must be whole", straggler));
    }
    unevenness.stragglers = static_cast<uint32_t>(pair.first);
    unevenness.stragglerFactor = pair.second;
  }
  if (!jitter.empty()) {
    SLUICE_ASSIGN_OR_RETURN(const auto pair, parsePair("--jitter", jitter));
    if (pair.first > 1) {
      return Status(
          Code::kInvalidArgument,
          fmt::format("--jitter '{}': the share of slow steps must be at most 1", jitter));
    }
    unevenness.jitterPeriod = static_cast<uint32_t>(std::lround(1 / pair.first));
    unevenness.jitterFactor = pair.second;
  }
  return unevenness;
}

}  // namespace sluice::bench
