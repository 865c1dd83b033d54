#include <sluice/join/membership/etcd/etcd_membership.h>

#include <unistd.h>

#include <fmt/format.h>

#include <sluice/base/options.h>
#include <sluice/join/membership/etcd/curl_library.h>
#include <sluice/join/membership/etcd/etcd_key_values.h>

namespace sluice::membership {

Result<std::unique_ptr<Membership>> makeEtcdMembership(net::EpollLoop& loop,
                                                       const EtcdSettings& settings,
                                                       const StoreOptions& options) {
  SLUICE_RETURN_IF_ERROR(checkJobName(options.job));
  EtcdOptions etcd;
  SLUICE_ASSIGN_OR_RETURN(etcd.address, parseEtcdAddress(settings.address));
  etcd.files = {
      .ca = settings.caFile, .certificate = settings.certificateFile, .key = settings.keyFile};
  // libcurl says only that there is a problem with a file.
  for (const std::string& file : {settings.caFile, settings.certificateFile, settings.keyFile}) {
    if (!file.empty() && ::access(file.c_str(), R_OK) != 0)
      return base::fromErrno(fmt::format("cannot read {}", file));
  }
  // Somebody who names certificates means to be safe. Going on without TLS would send the job's
  // records in the clear and trust any server, so this is an error and not a warning.
  if (!etcd.address.hasTls && !(settings.caFile + settings.certificateFile).empty())
    return Status(Code::kInvalidArgument,
                  fmt::format("{} is without TLS, but certificates are given; write etcds://",
                              settings.address));
  SLUICE_RETURN_IF_ERROR(loadCurl());
  return std::unique_ptr<Membership>(std::make_unique<StoreMembership>(
      loop, std::make_unique<EtcdKeyValues>(loop, etcd), options));
}

EtcdSettings etcdSettings(const base::Config& config) {
  return {.address = config.text(option::kMembers),
          .caFile = config.text(option::kMembersCa),
          .certificateFile = config.text(option::kMembersCertificate),
          .keyFile = config.text(option::kMembersKey)};
}

}  // namespace sluice::membership
