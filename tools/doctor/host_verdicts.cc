#include <algorithm>

#include <fmt/format.h>

#include <sluice/base/median.h>
#include <sluice/base/units.h>
#include <tools/doctor/verdicts.h>

namespace sluice::doctor {
namespace {

constexpr double kStarvedFactor = 3;  // wall time / CPU time of work that never waits
constexpr double kStolenLimit = 0.25;
constexpr double kSlowFactor = 1.5;
constexpr uint64_t kTinyBuffer = 128 << 10;

double waitFactor(const probe::ComputeFacts& compute) {
  return compute.totalCpuSeconds > 0 ? compute.totalSeconds / compute.totalCpuSeconds : 0;
}

}  // namespace

std::vector<Finding> judgeHosts(const CaseFile& file) {
  std::vector<Finding> found;
  std::vector<double> cpus;
  for (const auto& rank : file.network->ranks) cpus.push_back(rank.compute.cpuSeconds);
  const double usual = base::median(cpus);
  for (uint32_t rank = 0; rank < file.network->ranks.size(); ++rank) {
    const auto& compute = file.network->ranks[rank].compute;
    const CpuReport& cpu = file.hosts[rank].cpu;
    if (waitFactor(compute) >= kStarvedFactor || cpu.stolenShare >= kStolenLimit) {
      found.push_back(
          {Fault::kStarvedCpu,
           {rank},
           fmt::format("on {}, {:.0f} ms of work took {:.0f} ms; it may use {} CPUs{}, {:.1f} "
                       "processes want to run there, and {:.0f} % of the time was stolen",
                       describe(file, {rank}), compute.totalCpuSeconds * 1e3,
                       compute.totalSeconds * 1e3, cpu.cpus,
                       cpu.quota > 0
                           ? fmt::format(", limited to {:.2f} by its control group", cpu.quota)
                           : "",
                       cpu.load, cpu.stolenShare * 100),
           "End the other programs on that host, or raise the CPU limit of the job's container or "
           "control group."});
    } else if (usual > 0 && compute.cpuSeconds > kSlowFactor * usual) {
      found.push_back(
          {Fault::kSlowRank,
           {rank},
           fmt::format("{} computes {:.1f} times slower than the median of the ranks: {:.1f} ms "
                       "of CPU against {:.1f} ms",
                       describe(file, {rank}), compute.cpuSeconds / usual, compute.cpuSeconds * 1e3,
                       usual * 1e3),
           "Look at that host's clock rate (cpupower frequency-info), its temperature and its "
           "power limit, or leave it out: all ranks wait for the slowest."});
    }
  }
  return found;
}

std::vector<Finding> judgeBuffers(const CaseFile& file) {
  double fastest = 0;
  for (uint32_t rank = 0; rank < file.network->ranks.size(); ++rank)
    fastest = std::max(fastest, file.network->bestOut(rank));
  std::vector<Finding> found;
  for (uint32_t rank = 0; rank < file.hosts.size(); ++rank) {
    const HostReport& host = file.hosts[rank];
    if (host.receiveBuffer == 0 || host.sendBuffer == 0) continue;
    double roundTrip = 0;
    for (const auto& pair : file.network->ranks[rank].pairs)
      roundTrip = std::max(roundTrip, pair.roundTrip);
    const double held = fastest / 8 * roundTrip;  // bytes on the way at full speed
    // Half of a receive buffer holds data; the other half is for the kernel's own records.
    const bool isReceiveSmall =
        host.receiveBuffer < kTinyBuffer || static_cast<double>(host.receiveBuffer) / 2 < held;
    const bool isSendSmall =
        host.sendBuffer < kTinyBuffer || static_cast<double>(host.sendBuffer) < held;
    if (!isReceiveSmall && !isSendSmall) continue;
    const std::string name = isReceiveSmall ? "net.ipv4.tcp_rmem" : "net.ipv4.tcp_wmem";
    const uint64_t largest = isReceiveSmall ? host.receiveBuffer : host.sendBuffer;
    const uint64_t wanted = std::max<uint64_t>(6 << 20, static_cast<uint64_t>(4 * held));
    found.push_back(
        {Fault::kSmallBuffers,
         {rank},
         fmt::format("on {}, {} ends at {}; the link holds {} and a round trip takes {:.1f} ms",
                     describe(file, {rank}), name, base::formatBytes(largest),
                     base::formatBytes(static_cast<uint64_t>(held)), roundTrip * 1e3),
         fmt::format("Set it on that host: sysctl -w {}='4096 131072 {}'.", name, wanted)});
  }
  return found;
}

}  // namespace sluice::doctor
