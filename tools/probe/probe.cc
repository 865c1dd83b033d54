#include <tools/probe/probe.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include <fmt/format.h>

#include <sluice/base/await.h>
#include <sluice/base/cpu_time.h>
#include <sluice/base/median.h>
#include <sluice/base/net/address.h>
#include <sluice/transport/fabric/common.h>
#include <tools/probe/contact.h>
#include <tools/probe/crowd.h>
#include <tools/probe/load.h>
#include <tools/probe/local_costs.h>
#include <tools/probe/own_sockets.h>
#include <tools/probe/rounds.h>

namespace sluice::probe {
namespace {

using namespace std::chrono_literals;

constexpr uint32_t kTurns = 8;  // of the CPU's benchmark: ranks of one machine must not disturb
constexpr auto kTurnWithin = 10s;
constexpr auto kLoadPatience = 1s;
constexpr auto kShortestLoad = 150ms;
constexpr auto kLongestLoad = 500ms;
constexpr size_t kSingleBytes = 64;
constexpr size_t kMostSingles = 1000;

// The probe of one rank: each part is a method, and all ranks walk through them together.
class Probe final {
 public:
  Probe(Meeting& meeting, const ProbeOptions& options)
      : meeting_(meeting),
        options_(options),
        rounds_(chooseRounds(meeting.worldSize(), options.mostRounds)),
        talker_(meeting.loop()) {}

  Result<NetworkFacts> run() {
    const TimePoint begun = meeting_.loop().now();
    own_.name = net::hostName();
    own_.address = meeting_.interface().address.host();
    SLUICE_RETURN_IF_ERROR(measureHost());
    if (meeting_.worldSize() > 1) SLUICE_RETURN_IF_ERROR(measureNetwork());
    SLUICE_ASSIGN_OR_RETURN(NetworkFacts facts, exchange());
    facts.seconds = base::seconds(meeting_.loop().now() - begun);
    if (fabric_ != nullptr) (void)fabric::closeAndWait(*fabric_);  // nobody needs its last words
    return facts;
  }

 private:
  // All ranks are here when this returns.
  Status meet(const std::string& where, Duration atMost = kTurnWithin) {
    return meeting_.gather("probe/" + where, "", atMost).status();
  }

  Status measureHost() {
    const uint32_t turns = std::min(meeting_.worldSize(), kTurns);
    for (uint32_t turn = 0; turn < turns; ++turn) {
      SLUICE_RETURN_IF_ERROR(meet(fmt::format("turn/{}", turn)));
      if (index(meeting_.rank()) % kTurns != turn) continue;
      own_.compute = measureCompute();
      own_.compute.cpuSeconds *= options_.computeFactor;
      own_.codecCpuPerGb = measureCodecs();
      SLUICE_ASSIGN_OR_RETURN(own_.cpuPerGbPlain, measureLocalCost(/*encrypted=*/false));
      SLUICE_ASSIGN_OR_RETURN(own_.cpuPerGbEncrypted, measureLocalCost(/*encrypted=*/true));
    }
    return base::ok();
  }

  Status measureNetwork() {
    SLUICE_ASSIGN_OR_RETURN(fabric_, meeting_.makeFabric(talker_));
    SLUICE_RETURN_IF_ERROR(fabric::runAndWait(meeting_.loop(), [this] { talker_.use(*fabric_); }));
    SLUICE_RETURN_IF_ERROR(meet("ready"));
    std::vector<Rank> peers;
    for (const uint32_t round : rounds_) {
      if (const auto partner = partnerOf(index(meeting_.rank()), round, meeting_.worldSize()))
        peers.push_back(Rank{*partner});
    }
    SLUICE_ASSIGN_OR_RETURN(own_.pairs, contact(meeting_.loop(), talker_, peers));
    own_.isEncrypted =
        std::ranges::any_of(peers, [this](Rank peer) { return meeting_.encryptsTo(peer); });
    const Duration cpu = base::processCpuTime();
    const auto before = fabric_->counters();
    SLUICE_RETURN_IF_ERROR(measurePairs());
    SLUICE_RETURN_IF_ERROR(measureAll());
    const auto after = fabric_->counters();
    const auto bytes = static_cast<double>(after.bytesSent + after.bytesReceived -
                                           before.bytesSent - before.bytesReceived);
    if (bytes > 0) own_.cpuPerGb = base::seconds(base::processCpuTime() - cpu) / bytes * 1e9;
    return base::ok();
  }

  PairFacts* usablePair(uint32_t to) {
    const auto found = std::ranges::find(own_.pairs, to, &PairFacts::to);
    const bool isUsable = found != own_.pairs.end() && found->problem.empty() && found->largePasses;
    return isUsable ? &*found : nullptr;
  }

  Status measurePairs() {
    const auto share =
        options_.pairs / static_cast<int64_t>(2 * std::max<size_t>(rounds_.size(), 1));
    const Duration length = std::clamp<Duration>(share, kShortestLoad, kLongestLoad);
    const uint32_t rank = index(meeting_.rank());
    for (const uint32_t round : rounds_) {
      const auto partner = partnerOf(rank, round, meeting_.worldSize());
      for (const bool isUp : {true, false}) {
        SLUICE_RETURN_IF_ERROR(meet(fmt::format("pair/{}/{}", round, isUp)));
        if (!partner || (rank < *partner) != isUp) continue;
        if (PairFacts* pair = usablePair(*partner)) SLUICE_RETURN_IF_ERROR(load(*pair, length));
      }
    }
    return base::ok();
  }

  LoadOptions loadOf(const PairFacts& pair, Duration length) const {
    return {.to = Rank{pair.to},
            .length = length,
            .patience = kLoadPatience,
            .roundTrip = base::fromSeconds(pair.roundTrip)};
  }

  Status load(PairFacts& pair, Duration length) {
    const std::string address = meeting_.addresses()[pair.to].toString();
    const TcpFigures before = ownConnections()[address];
    SLUICE_ASSIGN_OR_RETURN(
        const LoadResult result, base::await<LoadResult>(meeting_.loop(), [&](const auto& got) {
          Load::start(meeting_.loop(), talker_, loadOf(pair, length), std::move(got));
        }));
    pair.bitsPerSecond = result.bitsPerSecond;
    if (!result.status.isOk()) pair.problem = result.status.message();
    countLosses(pair, before, ownConnections()[address]);
    return base::ok();
  }

  static void countLosses(PairFacts& pair, const TcpFigures& before, const TcpFigures& after) {
    pair.control = after.control;
    pair.segments += after.segments - std::min(before.segments, after.segments);
    pair.resent += after.resent - std::min(before.resent, after.resent);
  }

  using Took = std::function<void(PairFacts& pair, const LoadResult& result)>;

  // Loads all usable pairs of this rank at the same time, as all other ranks do.
  Status loadAll(const std::string& where, const LoadOptions& options, const Took& took) {
    std::vector<PairFacts*> pairs;
    for (PairFacts& pair : own_.pairs) {
      if (usablePair(pair.to) != nullptr) pairs.push_back(&pair);
    }
    SLUICE_RETURN_IF_ERROR(meet(where));
    auto before = ownConnections();
    const auto ended = base::await<bool>(meeting_.loop(), [&](const auto& got) {
      auto open = std::make_shared<size_t>(pairs.size() + 1);
      const auto oneLess = [open, got] {
        if (--*open == 0) got(true);
      };
      for (PairFacts* pair : pairs) {
        LoadOptions own = loadOf(*pair, options.length);
        own.singleBytes = options.singleBytes;
        own.mostSingles = options.mostSingles;
        Load::start(meeting_.loop(), talker_, own, [pair, took, oneLess](const LoadResult& result) {
          took(*pair, result);
          oneLess();
        });
      }
      oneLess();
    });
    SLUICE_RETURN_IF_ERROR(ended.status());
    auto after = ownConnections();
    for (PairFacts* pair : pairs) {
      const std::string address = meeting_.addresses()[pair->to].toString();
      countLosses(*pair, before[address], after[address]);
    }
    return base::ok();
  }

  // All ranks send to all: packets one by one, since the kernel and the card may lose a bundle as
  // one; then as much as the links carry, which shows a host that cannot take in what the others
  // send; then as TCP likes, which shows how long queues become.
  Status measureAll() {
    LoadOptions singles{.length = options_.singles};
    singles.singleBytes = kSingleBytes;
    singles.mostSingles = kMostSingles;
    SLUICE_RETURN_IF_ERROR(loadAll("singles", singles, [](PairFacts&, const LoadResult&) {}));
    SLUICE_RETURN_IF_ERROR(loadAll("all", {.length = options_.allAtOnce},
                                   [](PairFacts& pair, const LoadResult& result) {
                                     pair.sharedBitsPerSecond = result.bitsPerSecond;
                                   }));
    SLUICE_RETURN_IF_ERROR(meet("crowd"));
    std::vector<Rank> peers;
    for (const PairFacts& pair : own_.pairs) {
      if (usablePair(pair.to) != nullptr) peers.push_back(Rank{pair.to});
    }
    SLUICE_ASSIGN_OR_RETURN(const auto roundTrips,
                            crowdTheNetwork(meeting_.loop(), talker_, peers, options_.crowd));
    for (PairFacts& pair : own_.pairs) {
      const auto found = roundTrips.find(meeting_.addresses()[pair.to].toString());
      if (found != roundTrips.end()) pair.loadedRoundTrip = base::median(found->second);
    }
    return base::ok();
  }

  Result<NetworkFacts> exchange() {
    SLUICE_ASSIGN_OR_RETURN(const auto all, meeting_.gather("probe/facts", encode(own_)));
    NetworkFacts facts;
    for (const auto& each : all) {
      SLUICE_ASSIGN_OR_RETURN(auto rank, decodeRankFacts(each, meeting_.worldSize()));
      facts.ranks.push_back(std::move(rank));
    }
    for (RankFacts& rank : facts.ranks) rank.inAllBits = rank.outAllBits = 0;
    for (RankFacts& from : facts.ranks) {
      for (const PairFacts& pair : from.pairs) {
        from.outAllBits += pair.sharedBitsPerSecond;
        facts.ranks[pair.to].inAllBits += pair.sharedBitsPerSecond;
      }
    }
    return facts;
  }

  Meeting& meeting_;
  const ProbeOptions options_;
  const std::vector<uint32_t> rounds_;
  RankFacts own_;
  Talker talker_;
  std::unique_ptr<fabric::Fabric> fabric_;  // goes before the talker
};

}  // namespace

Result<NetworkFacts> probeNetwork(Meeting& meeting, const ProbeOptions& options) {
  Probe probe(meeting, options);
  return probe.run();
}

}  // namespace sluice::probe
