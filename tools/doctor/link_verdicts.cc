#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include <sluice/base/median.h>
#include <sluice/base/units.h>
#include <tools/doctor/verdicts.h>

namespace sluice::doctor {
namespace {

using probe::NetworkFacts;
using probe::PairFacts;

constexpr double kSlowFactor4 = 4;        // between the two directions, or between hosts
constexpr double kLossLimit = 0.003;      // of the segments of one direction of a host
constexpr double kLossEqual = 0.7;        // of the worst: named together with it
constexpr uint64_t kFewestResent = 3;     // fewer may be chance
constexpr double kOverfilledFactor = 10;  // round trip under load / idle
constexpr double kOverfilledSeconds = 0.03;

std::string megabits(double bitsPerSecond) {
  return fmt::format("{:.1f} Mbit/s", bitsPerSecond * 1e-6);
}

template <typename See>
void forEachPair(const CaseFile& file, const std::set<uint32_t>& excused, const See& see) {
  for (uint32_t from = 0; from < file.network->ranks.size(); ++from) {
    for (const PairFacts& pair : file.network->ranks[from].pairs) {
      if (!excused.contains(from) && !excused.contains(pair.to)) see(from, pair);
    }
  }
}

std::vector<Finding> judgeHoles(const CaseFile& file) {
  std::map<uint32_t, std::vector<uint32_t>> into;
  std::string why;
  forEachPair(file, {}, [&](uint32_t from, const PairFacts& pair) {
    if (pair.largePasses) return;
    into[pair.to].push_back(from);
    if (!pair.problem.empty()) why = fmt::format(" ({})", pair.problem);
  });
  std::vector<Finding> found;
  for (const auto& [to, from] : into) {
    found.push_back(
        {Fault::kMtuHole,
         {to},
         fmt::format("connections from {} to {} are made, but full-sized packets on them do not "
                     "arrive{}",
                     describe(file, from), describe(file, {to}), why),
         std::string(kMtuRemedy)});
  }
  return found;
}

struct DirectionLoss {
  uint32_t rank;
  bool isIn;
  uint64_t segments;
  uint64_t resent;
  double share() const {
    return segments > 0 ? static_cast<double>(resent) / static_cast<double>(segments) : 0;
  }
};

// Adds the ranks whose figures are explained by loss to `lossy`.
std::vector<Finding> judgeLoss(const CaseFile& file, const std::set<uint32_t>& excused,
                               std::set<uint32_t>& lossy) {
  std::map<std::pair<uint32_t, bool>, DirectionLoss> directions;
  forEachPair(file, excused, [&](uint32_t from, const PairFacts& pair) {
    for (const auto& [rank, isIn] : {std::pair{from, false}, std::pair{pair.to, true}}) {
      auto& each =
          directions.try_emplace({rank, isIn}, DirectionLoss{rank, isIn, 0, 0}).first->second;
      each.segments += pair.segments;
      each.resent += pair.resent;
    }
  });
  double worst = 0;
  for (const auto& [key, each] : directions) {
    if (each.resent >= kFewestResent) worst = std::max(worst, each.share());
  }
  if (worst < kLossLimit) return {};
  Finding finding{Fault::kPacketLoss, {}, "", ""};
  for (const auto& [key, each] : directions) {
    if (each.resent < kFewestResent || each.share() < kLossEqual * worst) continue;
    if (lossy.insert(each.rank).second) finding.ranks.push_back(each.rank);
    finding.evidence += fmt::format(
        "{}{:.2f} % of the packets {} {} were lost ({} of {} segments sent again)",
        finding.evidence.empty() ? "" : "; ", each.share() * 100, each.isIn ? "to" : "from",
        describe(file, {each.rank}), each.resent, each.segments);
  }
  finding.remedy =
      "Look at that host's cable, port and driver (ip -s link, ethtool -S) and at its switch port; "
      "on a long way that cannot be mended, try --congestion-control bbr.";
  return {finding};
}

std::vector<Finding> judgeRates(const CaseFile& file, const std::set<uint32_t>& excused) {
  const NetworkFacts& network = *file.network;
  std::vector<Finding> found;
  std::vector<double> best;
  for (uint32_t rank = 0; rank < network.ranks.size(); ++rank)
    best.push_back(std::max(network.bestOut(rank), network.bestIn(rank)));
  const double usual = base::median(best);
  std::set<uint32_t> slow = excused;
  for (uint32_t rank = 0; rank < network.ranks.size(); ++rank) {
    if (excused.contains(rank) || best[rank] <= 0 || best[rank] * kSlowFactor4 > usual) continue;
    slow.insert(rank);
    found.push_back({Fault::kSlowLink,
                     {rank},
                     fmt::format("{} sends and receives at {} at most; the median of the ranks is "
                                 "{}",
                                 describe(file, {rank}), megabits(best[rank]), megabits(usual)),
                     "Look at the speed that its link has agreed on (ethtool IFACE), its cable and "
                     "its switch port, or leave that host out."});
  }
  std::map<uint32_t, std::vector<uint32_t>> slowOut;
  std::map<uint32_t, std::vector<uint32_t>> slowIn;
  std::map<uint32_t, size_t> pairsOf;
  forEachPair(file, slow, [&](uint32_t from, const PairFacts& pair) {
    const PairFacts* back = network.pair(pair.to, from);
    if (back == nullptr || pair.bitsPerSecond <= 0 || back->bitsPerSecond <= 0) return;
    ++pairsOf[from];
    if (pair.bitsPerSecond * kSlowFactor4 > back->bitsPerSecond) return;
    slowOut[from].push_back(pair.to);
    slowIn[pair.to].push_back(from);
  });
  const auto add = [&](uint32_t rank, uint32_t other, bool isOut) {
    const PairFacts* there = isOut ? network.pair(rank, other) : network.pair(other, rank);
    const PairFacts* back = isOut ? network.pair(other, rank) : network.pair(rank, other);
    found.push_back(
        {Fault::kSlowDirection,
         {rank},
         fmt::format("{} {} {} at {}, and the other way at {}: {:.0f} times slower",
                     describe(file, {rank}), isOut ? "sends to" : "receives from",
                     describe(file, {other}), megabits(there->bitsPerSecond),
                     megabits(back->bitsPerSecond), back->bitsPerSecond / there->bitsPerSecond),
         "Look for a limit in that direction: traffic shaping (tc qdisc), a half-duplex port "
         "(ethtool IFACE), a bad fibre, or a firewall on the way."});
  };
  // A rank that is slow with several others is named once; the others are then not at fault.
  std::set<std::pair<uint32_t, uint32_t>> told;
  for (const bool isOut : {true, false}) {
    for (const auto& [rank, others] : isOut ? slowOut : slowIn) {
      if (others.size() < 2 && pairsOf[rank] > 1) continue;
      const bool isNew = std::ranges::any_of(others, [&](uint32_t other) {
        return !told.contains(isOut ? std::pair{rank, other} : std::pair{other, rank});
      });
      if (!isNew) continue;
      add(rank, others.front(), isOut);
      for (const uint32_t other : others)
        told.insert(isOut ? std::pair{rank, other} : std::pair{other, rank});
    }
  }
  for (const auto& [rank, others] : slowOut) {
    for (const uint32_t other : others) {
      if (told.emplace(rank, other).second) add(rank, other, /*isOut=*/true);
    }
  }
  return found;
}

// Cubic, which sluice chooses by itself, fills queues, too; that is known, and its slices wait
// little all the same. Another control was chosen by somebody, and can be chosen otherwise.
std::vector<Finding> judgeQueues(const CaseFile& file, const std::set<uint32_t>& excused) {
  std::map<uint32_t, const PairFacts*> worst;
  forEachPair(file, excused, [&](uint32_t from, const PairFacts& pair) {
    if (pair.control.empty() || pair.control == "cubic" || pair.roundTrip <= 0) return;
    if (pair.loadedRoundTrip < pair.roundTrip * kOverfilledFactor) return;
    if (pair.loadedRoundTrip < pair.roundTrip + kOverfilledSeconds) return;
    const PairFacts*& before = worst[from];
    if (before == nullptr || before->loadedRoundTrip < pair.loadedRoundTrip) before = &pair;
  });
  std::vector<Finding> found;
  for (const auto& [rank, pair] : worst) {
    found.push_back(
        {Fault::kOverfilledQueue,
         {rank},
         fmt::format("the round trip from {} to rank {} is {:.2f} ms on the idle network and "
                     "{:.0f} ms under load; the sender uses {}",
                     describe(file, {rank}), pair->to, pair->roundTrip * 1e3,
                     pair->loadedRoundTrip * 1e3, pair->control),
         "Leave --congestion-control at cubic, or shorten the queue before the slow link (tc qdisc "
         "replace dev IFACE root fq_codel)."});
  }
  return found;
}

}  // namespace

std::vector<Finding> judgeLinks(const CaseFile& file, const std::set<uint32_t>& excused) {
  std::vector<Finding> found = judgeHoles(file);
  std::set<uint32_t> explained = excused;
  for (const Finding& hole : found) explained.insert(hole.ranks.begin(), hole.ranks.end());
  const auto add = [&found](std::vector<Finding> more) {
    std::ranges::move(more, std::back_inserter(found));
  };
  add(judgeLoss(file, std::set(explained), explained));
  add(judgeRates(file, explained));
  add(judgeQueues(file, explained));
  return found;
}

}  // namespace sluice::doctor
