#include <sluice/join/membership/etcd/etcd_membership.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>

#include <fmt/format.h>

#include <sluice/base/file.h>
#include <sluice/base/log.h>
#include <sluice/base/net/address.h>
#include <sluice/base/options.h>
#include <sluice/join/membership/etcd/curl_library.h>
#include <sluice/join/membership/etcd/etcd_key_values.h>

namespace sluice::membership {
namespace {

constexpr size_t kLongestPassword = 4096;

// Fails unless both are given, or neither.
Status readUser(const EtcdSettings& settings, EtcdOptions& etcd) {
  if (settings.user.empty() != settings.passwordFile.empty()) {
    return {Code::kInvalidArgument,
            fmt::format("{} is given without {}; give both, or neither",
                        settings.user.empty() ? "members-password-file" : "members-user",
                        settings.user.empty() ? "members-user" : "members-password-file")};
  }
  if (settings.user.empty()) return base::ok();
  etcd.user = settings.user;
  SLUICE_ASSIGN_OR_RETURN(
      etcd.password, base::readPrivateFile("password file", settings.passwordFile, kLongestPassword,
                                           "a password"));
  // Editors end a file with a line break; no password does.
  while (etcd.password.ends_with('\n') || etcd.password.ends_with('\r')) etcd.password.pop_back();
  if (!etcd.password.empty()) return base::ok();
  return {Code::kInvalidArgument, fmt::format("{} holds no password", settings.passwordFile)};
}

bool isOnThisHost(const std::string& server) {
  if (server.starts_with("localhost:")) return true;
  const auto address = net::Address::parse(server);
  return address.isOk() && address->isLoopback();
}

void warnOfPlainText(const EtcdOptions& etcd) {
  if (etcd.address.hasTls || std::ranges::all_of(etcd.address.servers, isOnThisHost)) return;
  static std::atomic<bool> hasWarned{false};  // a process may ask several times
  if (hasWarned.exchange(true)) return;
  log("membership")
      .warn(
          "{} is without TLS: whoever is on the way can disturb the job{}; use etcds:// with "
          "certificates",
          etcd.address.toString(), etcd.user.empty() ? "" : " and read the password");
}

}  // namespace

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
  SLUICE_RETURN_IF_ERROR(readUser(settings, etcd));
  SLUICE_RETURN_IF_ERROR(loadCurl());
  warnOfPlainText(etcd);
  return std::unique_ptr<Membership>(std::make_unique<StoreMembership>(
      loop, std::make_unique<EtcdKeyValues>(loop, etcd), options));
}

EtcdSettings etcdSettings(const base::Config& config) {
  return {.address = config.text(option::kMembers),
          .caFile = config.text(option::kMembersCa),
          .certificateFile = config.text(option::kMembersCertificate),
          .keyFile = config.text(option::kMembersKey),
          .user = config.text(option::kMembersUser),
          .passwordFile = config.text(option::kMembersPasswordFile)};
}

}  // namespace sluice::membership
