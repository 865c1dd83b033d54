#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sluice/base/median.h>
#include <tools/doctor/verdicts.h>

namespace sluice::doctor {
namespace {

constexpr double kClockLimit = 1.0;  // seconds: more cannot be a late message

using ByValue = std::map<std::string, std::vector<uint32_t>>;

ByValue groupBy(const CaseFile& file, const std::function<std::string(const HostReport&)>& value) {
  ByValue groups;
  for (uint32_t rank = 0; rank < file.hosts.size(); ++rank)
    groups[value(file.hosts[rank])].push_back(rank);
  return groups;
}

// Returns the ranks that differ from what most have; the first of equals counts as most.
std::vector<uint32_t> minorityOf(const ByValue& groups) {
  const auto most = std::ranges::max_element(
      groups, [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  std::vector<uint32_t> ranks;
  for (const auto& [value, members] : groups) {
    if (value != most->first) ranks.insert(ranks.end(), members.begin(), members.end());
  }
  std::ranges::sort(ranks);
  return ranks;
}

std::string listed(const CaseFile& file, const ByValue& groups) {
  std::vector<std::string> parts;
  for (const auto& [value, members] : groups)
    parts.push_back(
        fmt::format("{} on {}", value.empty() ? "none" : value, describe(file, members)));
  return fmt::format("{}", fmt::join(parts, ", "));
}

bool isLoopbackText(std::string_view address) {
  return address.starts_with("127.") || address == "::1";
}

// Ranks whose host has another idea of rank 0's address than most.
std::vector<uint32_t> misledRanks(const CaseFile& file) {
  const auto groups = groupBy(file, [](const HostReport& host) {
    std::vector<std::string> sorted = host.master;
    std::ranges::sort(sorted);
    return fmt::format("{}", fmt::join(sorted, ", "));
  });
  if (groups.size() < 2) return {};
  // A loopback address is wrong wherever others have a real one, whatever most have.
  std::vector<uint32_t> loopback;
  for (uint32_t rank = 0; rank < file.hosts.size(); ++rank) {
    const auto& master = file.hosts[rank].master;
    if (!master.empty() && std::ranges::all_of(master, isLoopbackText)) loopback.push_back(rank);
  }
  return loopback.empty() ? minorityOf(groups) : loopback;
}

}  // namespace

std::vector<Finding> judgeVersions(const CaseFile& file) {
  std::vector<Finding> found;
  const auto versions = groupBy(file, [](const HostReport& host) { return host.version; });
  if (versions.size() > 1)
    found.push_back({Fault::kOtherVersion, minorityOf(versions),
                     fmt::format("sluice is {}", listed(file, versions)),
                     "Install the same version of sluice on all hosts."});
  const auto torches = groupBy(file, [](const HostReport& host) { return host.torch; });
  if (torches.size() > 1)
    found.push_back({Fault::kOtherTorch, minorityOf(torches),
                     fmt::format("PyTorch is {}", listed(file, torches)),
                     "Install the same version of PyTorch on all hosts, and activate the same "
                     "environment before the launcher."});
  if (versions.size() > 1) return found;  // other versions have other settings
  for (const auto& [name, value] : file.hosts.front().settings) {
    const auto settings = groupBy(file, [&](const HostReport& host) {
      const auto setting = host.settings.find(name);
      return setting == host.settings.end() ? std::string() : setting->second;
    });
    if (settings.size() > 1)
      found.push_back({Fault::kOtherSettings, minorityOf(settings),
                       fmt::format("{} is {}", name, listed(file, settings)),
                       fmt::format("Give --{} the same value on all ranks.", name)});
  }
  return found;
}

std::vector<Finding> judgeClocks(const CaseFile& file) {
  if (file.clocks.empty()) return {};
  std::vector<double> offsets;
  for (const ClockReading& clock : file.clocks) offsets.push_back(clock.offset);
  const double usual = base::median(offsets);
  std::vector<Finding> found;
  for (uint32_t rank = 0; rank < file.clocks.size(); ++rank) {
    const ClockReading& clock = file.clocks[rank];
    const double off = clock.offset - usual;
    if (std::abs(off) - clock.error < kClockLimit) continue;
    found.push_back(
        {Fault::kClockOff,
         {rank},
         fmt::format("the clock of {} is {:.1f} s {} those of the others (+- {:.3f} s)",
                     describe(file, {rank}), std::abs(off), off > 0 ? "ahead of" : "behind",
                     clock.error),
         "Start a time service (chrony, systemd-timesyncd) on that host: logs and traces of the "
         "ranks cannot be compared otherwise."});
  }
  return found;
}

std::vector<Finding> judgeReach(const CaseFile& file) {
  std::vector<Finding> found;
  const std::vector<uint32_t> misled = misledRanks(file);
  if (!misled.empty()) {
    std::vector<std::string> answers;
    for (uint32_t rank = 0; rank < file.hosts.size() && answers.size() < 8; ++rank)
      answers.push_back(
          fmt::format("{} on rank {}", fmt::join(file.hosts[rank].master, ", "), rank));
    found.push_back(
        {Fault::kResolver, misled,
         fmt::format("the name '{}' of rank 0 means {}", file.hosts.front().masterName,
                     fmt::join(answers, ", ")),
         fmt::format("Correct the name in /etc/hosts or in the name service of {}, or give "
                     "MASTER_ADDR as a number.",
                     describe(file, misled))});
  }
  std::map<uint32_t, std::vector<uint32_t>> missedBy;
  std::map<uint32_t, std::string> why;
  for (uint32_t rank = 0; rank < file.unreachable.size(); ++rank) {
    for (const auto& [to, reason] : file.unreachable[rank]) {
      missedBy[to].push_back(rank);
      why[to] = reason;
    }
  }
  for (const auto& [to, from] : missedBy) {
    if (std::ranges::find(misled, to) != misled.end()) continue;
    const HostReport& host = file.hosts[to];
    const std::string evidence =
        fmt::format("{} could not connect to {} at {} on {}: {}", describe(file, from),
                    describe(file, {to}), host.address, host.interface, why[to]);
    if (host.address != host.routedAddress) {
      found.push_back(
          {Fault::kWrongInterface,
           {to},
           fmt::format("{}; the way from there to rank 0 leads over {}", evidence,
                       host.routedAddress),
           "Name the interface that all hosts share with --iface (SLUICE_IFACE), or leave the "
           "option out."});
    } else {
      found.push_back({Fault::kBlockedPort,
                       {to},
                       evidence,
                       "Let the hosts of the job reach each other on all TCP ports from 1024 on: "
                       "the ports of ranks are chosen anew for each job."});
    }
  }
  return found;
}

}  // namespace sluice::doctor
