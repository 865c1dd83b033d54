#include <tools/doctor/host_report.h>

#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sluice/base/net/address.h>
#include <sluice/base/options.h>
#include <sluice/base/text.h>
#include <sluice/base/version.h>
#include <tools/doctor/torch_version.h>
#include <tools/probe/json_fields.h>

namespace sluice::doctor {
namespace {

using nlohmann::json;
using probe::countIn;
using probe::numberIn;
using probe::partIn;
using probe::textIn;

std::string firstLineOf(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Returns the smallest limit on the way from the process's own group up to the root.
double readQuota() {
  std::ifstream groups("/proc/self/cgroup");
  double smallest = 0;
  for (std::string line; std::getline(groups, line);) {
    const auto parts = base::split(line, ':');
    if (parts.size() < 3) continue;
    const bool isSecond = parts[1].empty();  // one tree for all controllers
    bool isCpu = false;
    for (const auto each : base::split(parts[1], ',')) isCpu = isCpu || each == "cpu";
    if (!isSecond && !isCpu) continue;
    std::string group(parts[2]);
    while (true) {
      double quota = 0;
      if (isSecond) {
        quota = quotaOf(firstLineOf("/sys/fs/cgroup" + group + "/cpu.max"));
      } else {
        const std::string folder = "/sys/fs/cgroup/cpu" + group;
        quota = quotaOf(firstLineOf(folder + "/cpu.cfs_quota_us") + " " +
                        firstLineOf(folder + "/cpu.cfs_period_us"));
      }
      if (quota > 0 && (smallest <= 0 || quota < smallest)) smallest = quota;
      const auto slash = group.rfind('/');
      if (slash == std::string::npos || group.size() <= 1) break;
      group.resize(slash);
    }
  }
  return smallest;
}

CpuReport readCpu() {
  CpuReport cpu;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) == 0)
    cpu.cpus = static_cast<uint32_t>(CPU_COUNT(&allowed));
  cpu.quota = readQuota();
  std::istringstream(firstLineOf("/proc/loadavg")) >> cpu.load;
  return cpu;
}

}  // namespace

uint64_t largestOf(std::string_view threeNumbers) {
  std::istringstream text{std::string(threeNumbers)};
  uint64_t smallest = 0;
  uint64_t usual = 0;
  uint64_t largest = 0;
  return text >> smallest >> usual >> largest ? largest : 0;
}

double quotaOf(std::string_view cpuMax) {
  std::istringstream text{std::string(cpuMax)};
  double quota = 0;
  double period = 0;
  return text >> quota >> period && quota > 0 && period > 0 ? quota / period : 0;
}

CpuTicks readCpuTicks() {
  std::istringstream text(firstLineOf("/proc/stat"));
  std::string label;
  text >> label;
  CpuTicks ticks;
  constexpr int kStolen = 7;  // user, nice, system, idle, iowait, irq, softirq, steal
  uint64_t value = 0;
  for (int field = 0; field <= kStolen && text >> value; ++field) {
    ticks.all += value;
    if (field == kStolen) ticks.stolen = value;
  }
  return ticks;
}

HostReport readHostReport(const base::Config& config) {
  HostReport report;
  report.version = base::version();
  report.torch = findTorchVersion();
  report.host = net::hostName();
  report.pid = static_cast<uint32_t>(::getpid());
  for (const base::Option* option : base::allOptions()) {
    if (option->mustAgree && !option->secret)
      report.settings.emplace(option->name, config.value(*option).text);
  }
  report.cpu = readCpu();
  report.receiveBuffer = largestOf(firstLineOf("/proc/sys/net/ipv4/tcp_rmem"));
  report.sendBuffer = largestOf(firstLineOf("/proc/sys/net/ipv4/tcp_wmem"));
  return report;
}

std::string encode(const HostReport& report) {
  return probe::dumped({{"version", report.version},
                        {"torch", report.torch},
                        {"host", report.host},
                        {"pid", report.pid},
                        {"local_rank", report.localRank},
                        {"interface", report.interface},
                        {"address", report.address},
                        {"routed_address", report.routedAddress},
                        {"master_name", report.masterName},
                        {"master", report.master},
                        {"settings", report.settings},
                        {"cpus", report.cpu.cpus},
                        {"cpu_quota", report.cpu.quota},
                        {"load", report.cpu.load},
                        {"receive_buffer", report.receiveBuffer},
                        {"send_buffer", report.sendBuffer}});
}

Result<HostReport> decodeHostReport(std::string_view text) {
  const json document = probe::noteFrom(text);
  if (!document.is_object())
    return Status(Code::kDataLoss, "the report of a rank cannot be read; is it another version?");
  const auto words = [&](const char* key) { return base::printable(textIn(document, key)); };
  HostReport report;
  report.version = words("version");
  report.torch = words("torch");
  report.host = words("host");
  report.pid = static_cast<uint32_t>(countIn(document, "pid"));
  report.localRank = static_cast<uint32_t>(countIn(document, "local_rank"));
  report.interface = words("interface");
  report.address = words("address");
  report.routedAddress = words("routed_address");
  report.masterName = words("master_name");
  for (const json& each : partIn(document, "master")) {
    if (each.is_string()) report.master.push_back(base::printable(each.get<std::string>()));
  }
  const json settings = partIn(document, "settings");
  for (const auto& [key, value] : settings.items())
    report.settings[base::printable(key)] = base::printable(textIn(settings, key.c_str()));
  report.cpu.cpus = static_cast<uint32_t>(countIn(document, "cpus"));
  report.cpu.quota = numberIn(document, "cpu_quota");
  report.cpu.load = numberIn(document, "load");
  report.receiveBuffer = countIn(document, "receive_buffer");
  report.sendBuffer = countIn(document, "send_buffer");
  return report;
}

}  // namespace sluice::doctor
