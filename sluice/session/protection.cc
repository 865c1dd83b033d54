#include <sluice/session/protection.h>

#include <fmt/format.h>

#include <sluice/base/options.h>

namespace sluice::session {

Protection describeProtection(const base::Config& config, bool isOneHost, bool hasKey) {
  const bool isUcx = config.text(option::kFabric) == "ucx";
  const std::string& encrypt = config.text(option::kEncrypt);
  const bool isEncrypted = !isUcx && (encrypt == "on" || (encrypt == "auto" && !isOneHost));
  const bool isAuthenticated = !isUcx && encrypt == "integrity";
  const bool isChecked = config.text(option::kPayloadCheck) != "off";
  Protection protection;
  if (isEncrypted) {
    protection.words = "encrypted (TLS 1.3)";
  } else if (isAuthenticated) {
    protection.words = "authenticated, not encrypted (AES-GMAC)";
  } else if (isChecked) {
    protection.words = "checksummed only (CRC32C): anybody on the path can read and change them";
  } else {
    protection.words =
        "not protected: anybody on the path can read and change them, and accidents go unnoticed";
  }
  if (!isOneHost && !hasKey)
    protection.words += "; without a job key, ranks are not proved to be of this job";
  // A key shows that strangers are a concern here, so payloads that strangers can change are
  // probably an oversight.
  if (hasKey && !isOneHost && !isEncrypted && !isAuthenticated) {
    protection.warning = fmt::format(
        "there is a job key, but payloads to other hosts are neither encrypted nor authenticated: "
        "{}, "
        "unless nobody else reaches this network",
        isUcx ? "use --fabric tcp" : "say --encrypt on or --encrypt integrity");
  }
  return protection;
}

Status checkProtectionOfUcx(const base::Config& config) {
  const std::string& encrypt = config.text(option::kEncrypt);
  if (encrypt != "on" && encrypt != "integrity") return {};
  return {Code::kInvalidArgument,
          fmt::format("--fabric ucx has no --encrypt {}: use --fabric tcp, or say --encrypt off",
                      encrypt)};
}

}  // namespace sluice::session
