// Decides which ranks serve and which train, from `--servers all|K|dedicated:K` and the size of the
// job. Plain values, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <sluice/base/ids.h>
#include <sluice/base/status.h>

namespace sluice::plan {

inline constexpr uint32_t kMaxWorld = 1U << 20;

struct Roles {
  uint32_t world = 0;           // ranks in the job
  std::vector<Rank> servers{};  // ascending; hold parameters, sum and update
  std::vector<Rank> workers{};  // ascending; compute gradients

  bool isServer(Rank rank) const;
  bool isWorker(Rank rank) const;
  // Return the position of `rank` among the servers or the workers. REQUIRES: `rank` is one of
  // them.
  uint32_t serverPosition(Rank rank) const;
  uint32_t workerPosition(Rank rank) const;

  std::string toString() const;  // "4 ranks: servers 0-3, workers 0-3"
  friend bool operator==(const Roles&, const Roles&) = default;
};

// all: every rank serves and trains. K: the first K ranks serve, all train. dedicated:K: the last K
// ranks serve and do nothing else.
Result<Roles> parseRoles(std::string_view servers, uint32_t world);

// Ok iff servers and workers are ascending and inside the world, there is at least one of each, and
// every rank has something to do.
Status check(const Roles& roles);

}  // namespace sluice::plan

namespace sluice {
using plan::Roles;
}  // namespace sluice
