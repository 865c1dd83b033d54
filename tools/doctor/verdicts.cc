#include <tools/doctor/verdicts.h>

#include <algorithm>

#include <fmt/format.h>

#include <sluice/join/rendezvous/rank_list.h>

namespace sluice::doctor {

std::string describe(const CaseFile& file, const std::vector<uint32_t>& ranks) {
  std::vector<Rank> sorted;
  for (const uint32_t rank : ranks) sorted.push_back(Rank{rank});
  std::ranges::sort(sorted);
  const std::string words = rendezvous::describeRanks(sorted);
  const bool isOne = ranks.size() == 1 && ranks.front() < file.hosts.size();
  return isOne ? fmt::format("{} ({})", words, file.hosts[ranks.front()].host) : words;
}

std::vector<Finding> judge(const CaseFile& file) {
  std::vector<Finding> all = judgeVersions(file);
  const auto add = [&all](std::vector<Finding> more) {
    std::ranges::move(more, std::back_inserter(all));
  };
  add(judgeClocks(file));
  add(judgeReach(file));
  if (!file.network) return all;
  std::vector<Finding> hosts = judgeHosts(file);
  std::set<uint32_t> excused;
  for (const Finding& finding : hosts) {
    if (finding.fault == Fault::kStarvedCpu)
      excused.insert(finding.ranks.begin(), finding.ranks.end());
  }
  add(std::move(hosts));
  std::vector<Finding> buffers = judgeBuffers(file);
  for (const Finding& finding : buffers) excused.insert(finding.ranks.begin(), finding.ranks.end());
  add(std::move(buffers));
  add(judgeLinks(file, excused));
  return all;
}

}  // namespace sluice::doctor
