#include <sluice/data/plan/roles.h>

#include <algorithm>

#include <fmt/format.h>

#include <sluice/base/units.h>

namespace sluice::plan {
namespace {

std::vector<Rank> range(uint32_t first, uint32_t end) {
  std::vector<Rank> ranks;
  ranks.reserve(end - first);
  for (uint32_t r = first; r < end; ++r) ranks.push_back(Rank{r});
  return ranks;
}

uint32_t positionIn(const std::vector<Rank>& ranks, Rank rank) {
  const auto found = std::ranges::lower_bound(ranks, rank);
  SLUICE_CHECK(found != ranks.end() && *found == rank, index(rank));
  return static_cast<uint32_t>(found - ranks.begin());
}

// "0-3" or "0-1,4": runs of neighbours are folded, so that 4096 ranks stay one line.
std::string describe(const std::vector<Rank>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && index(ranks[last + 1]) == index(ranks[last]) + 1) ++last;
    if (!text.empty()) text += ',';
    text += last == i ? fmt::format("{}", ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[last]);
    i = last + 1;
  }
  return text;
}

Status impossible(std::string text) {
  return {Code::kInvalidArgument, std::move(text)};
}

}  // namespace

bool Roles::isServer(Rank rank) const {
  return std::ranges::binary_search(servers, rank);
}
bool Roles::isWorker(Rank rank) const {
  return std::ranges::binary_search(workers, rank);
}
uint32_t Roles::serverPosition(Rank rank) const {
  return positionIn(servers, rank);
}
uint32_t Roles::workerPosition(Rank rank) const {
  return positionIn(workers, rank);
}

std::string Roles::toString() const {
  return fmt::format("{} ranks: servers {}, workers {}", world, describe(servers),
                     describe(workers));
}

Result<Roles> parseRoles(std::string_view servers, uint32_t world) {
  if (world == 0 || world > kMaxWorld) {
    return impossible(fmt::format("a job cannot have {} ranks; give 1 to {}", world, kMaxWorld));
  }
  if (servers == "all") return Roles{world, range(0, world), range(0, world)};

  constexpr std::string_view kDedicated = "dedicated:";
  const bool dedicated = servers.starts_with(kDedicated);
  const auto count = base::parseInteger(dedicated ? servers.substr(kDedicated.size()) : servers);
  if (!count.isOk()) {
    return impossible(fmt::format(
        "--servers '{}' is not understood; write all, K or dedicated:K, where K is a number",
        servers));
  }
  // Dedicated servers do not train, so at least one rank must be left that does.
  const uint32_t most = dedicated ? world - 1 : world;
  if (*count < 1 || *count > most) {
    return impossible(fmt::format("--servers {}: a job of {} ranks can have 1 to {} {}servers",
                                  servers, world, most, dedicated ? "dedicated " : ""));
  }
  const auto k = static_cast<uint32_t>(*count);
  if (dedicated) return Roles{world, range(world - k, world), range(0, world - k)};
  return Roles{world, range(0, k), range(0, world)};
}

Status check(const Roles& roles) {
  if (roles.world == 0 || roles.world > kMaxWorld) {
    return impossible(
        fmt::format("a job cannot have {} ranks; give 1 to {}", roles.world, kMaxWorld));
  }
  for (const auto* ranks : {&roles.servers, &roles.workers}) {
    const std::string_view what = ranks == &roles.servers ? "server" : "worker";
    if (ranks->empty()) return impossible(fmt::format("the job has no {}", what));
    // Positions are found by binary search, which needs ascending ranks without repeats.
    if (std::ranges::adjacent_find(*ranks, std::ranges::greater_equal()) != ranks->end()) {
      return impossible(fmt::format("the {}s are not in ascending order", what));
    }
    if (index(ranks->back()) >= roles.world) {
      return impossible(fmt::format("{} {} is outside a job of {} ranks", what,
                                    index(ranks->back()), roles.world));
    }
  }
  for (uint32_t r = 0; r < roles.world; ++r) {
    if (!roles.isServer(Rank{r}) && !roles.isWorker(Rank{r})) {
      return impossible(fmt::format("rank {} neither serves nor trains", r));
    }
  }
  return base::ok();
}

}  // namespace sluice::plan
