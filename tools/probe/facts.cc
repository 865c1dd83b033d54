#include <tools/probe/facts.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include <sluice/base/text.h>
#include <tools/probe/json_fields.h>

namespace sluice::probe {
namespace {

using nlohmann::json;

json toJson(const PairFacts& pair) {
  return {{"to", pair.to},
          {"problem", pair.problem},
          {"large_passes", pair.largePasses},
          {"round_trip_s", pair.roundTrip},
          {"loaded_round_trip_s", pair.loadedRoundTrip},
          {"bits_per_s", pair.bitsPerSecond},
          {"all_at_once_bits_per_s", pair.sharedBitsPerSecond},
          {"segments", pair.segments},
          {"resent", pair.resent},
          {"congestion_control", pair.control}};
}

PairFacts pairFrom(const json& each) {
  PairFacts pair;
  pair.to = static_cast<uint32_t>(std::min<uint64_t>(countIn(each, "to"), UINT32_MAX));
  pair.problem = base::printable(textIn(each, "problem", 512));
  pair.largePasses = switchIn(each, "large_passes");
  pair.roundTrip = numberIn(each, "round_trip_s");
  pair.loadedRoundTrip = numberIn(each, "loaded_round_trip_s");
  pair.bitsPerSecond = numberIn(each, "bits_per_s");
  pair.sharedBitsPerSecond = numberIn(each, "all_at_once_bits_per_s");
  pair.segments = countIn(each, "segments");
  pair.resent = countIn(each, "resent");
  pair.control = base::printable(textIn(each, "congestion_control", 16));
  return pair;
}

json toJson(const RankFacts& facts) {
  json pairs = json::array();
  for (const PairFacts& pair : facts.pairs) pairs.push_back(toJson(pair));
  return {{"host", facts.name},
          {"address", facts.address},
          {"encrypted", facts.isEncrypted},
          {"pairs", std::move(pairs)},
          {"all_at_once_out_bits_per_s", facts.outAllBits},
          {"all_at_once_in_bits_per_s", facts.inAllBits},
          {"cpu_s_per_gb", facts.cpuPerGb},
          {"cpu_s_per_gb_plain", facts.cpuPerGbPlain},
          {"cpu_s_per_gb_encrypted", facts.cpuPerGbEncrypted},
          {"codec_cpu_s_per_gb", facts.codecCpuPerGb},
          {"compute_cpu_s", facts.compute.cpuSeconds},
          {"compute_total_cpu_s", facts.compute.totalCpuSeconds},
          {"compute_total_s", facts.compute.totalSeconds}};
}

}  // namespace

std::string encode(const RankFacts& facts) {
  return dumped(toJson(facts));
}

Result<RankFacts> decodeRankFacts(std::string_view text, uint32_t worldSize) {
  const json document = noteFrom(text);
  if (!document.is_object())
    return Status(Code::kDataLoss, "the figures of a rank cannot be read; is it another version?");
  RankFacts facts;
  facts.name = base::printable(textIn(document, "host"));
  facts.address = base::printable(textIn(document, "address"));
  facts.isEncrypted = switchIn(document, "encrypted");
  for (const json& each : partIn(document, "pairs")) {
    PairFacts pair = pairFrom(each);
    if (pair.to < worldSize) facts.pairs.push_back(std::move(pair));
  }
  facts.outAllBits = numberIn(document, "all_at_once_out_bits_per_s");
  facts.inAllBits = numberIn(document, "all_at_once_in_bits_per_s");
  facts.cpuPerGb = numberIn(document, "cpu_s_per_gb");
  facts.cpuPerGbPlain = numberIn(document, "cpu_s_per_gb_plain");
  facts.cpuPerGbEncrypted = numberIn(document, "cpu_s_per_gb_encrypted");
  const json codecs = partIn(document, "codec_cpu_s_per_gb");
  for (const auto& [key, value] : codecs.items())
    facts.codecCpuPerGb[base::printable(key.substr(0, 16))] = numberIn(codecs, key.c_str());
  facts.compute = {.cpuSeconds = numberIn(document, "compute_cpu_s"),
                   .totalCpuSeconds = numberIn(document, "compute_total_cpu_s"),
                   .totalSeconds = numberIn(document, "compute_total_s")};
  return facts;
}

nlohmann::ordered_json toJson(const NetworkFacts& facts) {
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (const RankFacts& rank : facts.ranks)
    ranks.push_back(nlohmann::ordered_json::parse(encode(rank), nullptr, false));
  return {{"seconds", facts.seconds}, {"ranks", std::move(ranks)}};
}

const PairFacts* NetworkFacts::pair(uint32_t from, uint32_t to) const {
  if (from >= ranks.size()) return nullptr;
  const auto found = std::ranges::find(ranks[from].pairs, to, &PairFacts::to);
  return found == ranks[from].pairs.end() ? nullptr : &*found;
}

double NetworkFacts::bestOut(uint32_t rank) const {
  double best = 0;
  for (const PairFacts& pair : ranks[rank].pairs) {
    if (ranks[pair.to].address != ranks[rank].address) best = std::max(best, pair.bitsPerSecond);
  }
  return best;
}

double NetworkFacts::bestIn(uint32_t rank) const {
  double best = 0;
  for (uint32_t from = 0; from < ranks.size(); ++from) {
    const PairFacts* pair = this->pair(from, rank);
    if (pair != nullptr && ranks[from].address != ranks[rank].address)
      best = std::max(best, pair->bitsPerSecond);
  }
  return best;
}

}  // namespace sluice::probe
