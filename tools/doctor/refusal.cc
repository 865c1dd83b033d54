#include <tools/doctor/refusal.h>

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace sluice::doctor {
namespace {

bool says(const Status& error, std::string_view words) {
  return error.message().find(words) != std::string::npos;
}

// True iff this host takes itself for rank 0's.
bool meansItself(uint32_t rank, const HostReport& own,
                 const std::vector<std::string>& ownAddresses) {
  if (rank == 0 || own.localRank != 0 || own.master.empty()) return false;
  return std::ranges::all_of(own.master, [&](const std::string& address) {
    return address.starts_with("127.") || address == "::1" ||
           std::ranges::find(ownAddresses, address) != ownAddresses.end();
  });
}

}  // namespace

std::optional<Finding> explainRefusal(const Status& error, uint32_t rank, const HostReport& own,
                                      const std::vector<std::string>& ownAddresses) {
  const auto finding = [&](Fault fault, std::string remedy) {
    return Finding{
        fault, {rank}, fmt::format("rank {}: {}", rank, error.message()), std::move(remedy)};
  };
  if (says(error, "job key") && error.code() != Code::kInvalidArgument)
    return finding(Fault::kWrongKey,
                   "Give all ranks the same key file (sluice key new -o FILE, then --job-key-file "
                   "or SLUICE_JOB_KEY_FILE): copy that of rank 0.");
  if (says(error, "version"))
    return finding(Fault::kOtherVersion, "Install the same version of sluice on all hosts.");
  if (says(error, "no network interface is named") || says(error, "no route to rank 0"))
    return finding(Fault::kWrongInterface,
                   "Name the interface that all hosts share with --iface (SLUICE_IFACE), or leave "
                   "the option out.");
  if (meansItself(rank, own, ownAddresses))
    return Finding{
        Fault::kResolver,
        {rank},
        fmt::format("rank {} takes '{}' for {}, which is this host and not that of rank 0", rank,
                    own.masterName, fmt::join(own.master, ", ")),
        "Correct the name in this host's /etc/hosts or name service, or give MASTER_ADDR as a "
        "number."};
  if (own.master.empty())
    return finding(Fault::kResolver,
                   "Correct the name of rank 0 in this host's /etc/hosts or name service, or give "
                   "MASTER_ADDR as a number.");
  if (error.code() == Code::kRefused)
    return finding(Fault::kOtherSettings, "Start all ranks with the same command and options.");
  if (error.code() == Code::kTimeout && says(error, "did not reach"))
    return finding(Fault::kBlockedPort,
                   "Start rank 0, and let the hosts of the job reach each other on all TCP ports "
                   "from 1024 on (look at nft list ruleset, iptables -L and security groups).");
  return std::nullopt;
}

}  // namespace sluice::doctor
