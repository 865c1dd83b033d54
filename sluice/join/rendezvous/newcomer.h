// A process describes itself by this when it asks rank 0 to let it join. Rank 0 uses it to tell a
// process that was left over from an earlier launch from the one that belongs to this job. A value;
// pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <sluice/base/clock.h>
#include <sluice/base/status.h>
#include <sluice/secret/job_key.h>

namespace sluice::rendezvous {

struct Newcomer {
  std::string agreementHash{};        // 32 bytes
  secret::JobNonce process{};         // random, drawn once by each process that joins
  secret::JobNonce job{};             // of the job it has joined before; zeros for a first join
  std::chrono::milliseconds age{};    // time since its process was started
  std::chrono::milliseconds waits{};  // time since it began to look for rank 0
  uint32_t pid = 0;

  std::string encode() const;
  static Result<Newcomer> decode(std::string_view bytes);
  friend bool operator==(const Newcomer&, const Newcomer&) = default;
};

// Returns the time since this process was started; zero if the system does not say.
std::chrono::milliseconds processAge();

}  // namespace sluice::rendezvous
