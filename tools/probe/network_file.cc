#include <tools/probe/network_file.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sluice/base/median.h>

namespace sluice::probe {
namespace {

constexpr double kFrameShare = 1514.0 / 1448.0;  // a full frame on the wire / its payload
constexpr double kSharedLeast = 0.75;            // of a pair's rate, when all send to all
constexpr double kUnlike = 0.15;

// A host's rate by its best pair, unless all-at-once leaves it much less: then it is that.
double linkBits(double pairBits, double allBits) {
  const bool isShared = allBits > 0 && allBits < kSharedLeast * pairBits;
  return kFrameShare * (isShared ? allBits : pairBits);
}

// Three digits: more would pretend to be exact.
std::string rateText(double bits) {
  const double unit = bits >= 1e9 ? 1e9 : bits >= 1e6 ? 1e6 : 1e3;
  const char* name = bits >= 1e9 ? "gbit" : bits >= 1e6 ? "mbit" : "kbit";
  const double value = bits / unit;
  const double rounded = value >= 100 ? std::round(value) : std::round(value * 100) / 100;
  return fmt::format("{}{}", rounded, name);
}

bool isUnlike(double bits, double usual) {
  return bits > 0 && std::abs(bits - usual) > kUnlike * usual;
}

}  // namespace

Result<nlohmann::ordered_json> networkFile(const NetworkFacts& facts) {
  std::vector<double> rates;
  std::vector<double> roundTrips;
  std::vector<double> outs;
  std::vector<double> ins;
  double segments = 0;
  double resent = 0;
  bool isEncrypted = false;
  nlohmann::ordered_json names = nlohmann::ordered_json::array();
  for (uint32_t rank = 0; rank < facts.ranks.size(); ++rank) {
    const RankFacts& own = facts.ranks[rank];
    outs.push_back(linkBits(facts.bestOut(rank), own.outAllBits));
    ins.push_back(linkBits(facts.bestIn(rank), own.inAllBits));
    for (const double bits : {outs.back(), ins.back()}) {
      if (bits > 0) rates.push_back(bits);
    }
    for (const PairFacts& pair : own.pairs) {
      if (pair.roundTrip > 0) roundTrips.push_back(pair.roundTrip);
      segments += static_cast<double>(pair.segments);
      resent += static_cast<double>(pair.resent);
    }
    isEncrypted = isEncrypted || own.isEncrypted;
    names.push_back(own.name);
  }
  if (rates.empty())
    return Status(Code::kUnavailable,
                  "no rate could be measured between two hosts; 'sluice doctor' says why");
  const double usual = base::median(rates);
  const double oneWay = roundTrips.empty() ? 0 : base::median(roundTrips) / 2;
  nlohmann::ordered_json hosts = nlohmann::ordered_json::object();
  for (size_t rank = 0; rank < outs.size(); ++rank) {
    if (!isUnlike(outs[rank], usual) && !isUnlike(ins[rank], usual)) continue;
    hosts[std::to_string(rank)] = {{"out", rateText(outs[rank] > 0 ? outs[rank] : usual)},
                                   {"in", rateText(ins[rank] > 0 ? ins[rank] : usual)}};
  }
  nlohmann::ordered_json file{
      {"rate", rateText(usual)},
      {"latency", fmt::format("{}us", std::max(1.0, std::round(oneWay * 1e6)))},
      {"loss", segments > 0 ? std::round(resent / segments * 1e5) / 1e5 : 0},
      {"encrypted", isEncrypted},
      {"names", std::move(names)}};
  file["hosts"] = std::move(hosts);
  return file;
}

}  // namespace sluice::probe
