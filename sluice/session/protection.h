// Says in words for the log what protects the payloads of a job. Pure functions.
#pragma once

#include <string>

#include <sluice/base/config.h>

namespace sluice::session {

struct Protection {
  std::string words;    // "encrypted (TLS 1.3)"
  std::string warning;  // empty if there is nothing to warn of
};

// `isOneHost`: all ranks reach each other by loopback addresses. `hasKey`: the job has a secret
// key.
Protection describeProtection(const base::Config& config, bool isOneHost, bool hasKey);

// Refuses what --fabric ucx cannot do.
Status checkProtectionOfUcx(const base::Config& config);

}  // namespace sluice::session
