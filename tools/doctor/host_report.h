// A rank's report on itself and its host, made without any other rank. It travels to all ranks as a
// note of the rendezvous. Plain values; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <sluice/base/config.h>
#include <sluice/base/status.h>

namespace sluice::doctor {

struct CpuReport {
  uint32_t cpus = 0;       // that this process may use
  double quota = 0;        // of CPUs, by its control group; 0: no limit
  double load = 0;         // processes that want to run, in the last minute
  double stolenShare = 0;  // of the CPU time during the examination, taken by the hypervisor
};

struct HostReport {
  std::string version;  // of sluice
  std::string torch;    // empty if not found
  std::string host;
  uint32_t pid = 0;
  uint32_t localRank = 0;
  std::string interface;
  std::string address;                          // that the others use
  std::string routedAddress;                    // from which the kernel would send to rank 0
  std::string masterName;                       // as the launcher gave it
  std::vector<std::string> master;              // the addresses that this host finds for it
  std::map<std::string, std::string> settings;  // that all ranks must have in common
  CpuReport cpu;
  uint64_t receiveBuffer = 0;  // the largest that TCP may take by itself; 0: unknown
  uint64_t sendBuffer = 0;
};

// Reads what does not depend on the meeting: versions, settings, CPU, buffers.
HostReport readHostReport(const base::Config& config);

std::string encode(const HostReport& report);
Result<HostReport> decodeHostReport(std::string_view text);

// The time that all CPUs spent, and that the hypervisor took from them, since the machine started.
struct CpuTicks {
  uint64_t all = 0;
  uint64_t stolen = 0;
};
CpuTicks readCpuTicks();

// Takes the third number out of "4096 131072 6291456"; 0 if it is missing.
uint64_t largestOf(std::string_view threeNumbers);
// Takes the CPUs out of a control group's "200000 100000"; 0 for "max 100000".
double quotaOf(std::string_view cpuMax);

}  // namespace sluice::doctor
