// Membership in this process's memory, for tests and simulations.
#pragma once

#include <memory>

#include <sluice/join/membership/store_membership.h>
#include <sluice/join/membership/testing/memory_key_values.h>

namespace sluice::membership {

struct MemoryMembership {
  std::unique_ptr<Membership> membership;
  MemoryKeyValues* way;  // for setUnavailable(); it lives as long as the membership
};

// A member's view of the table that it shares with the other members of the job.
inline MemoryMembership makeMemoryMembership(Loop& loop, std::shared_ptr<MemoryTable> table,
                                             const StoreOptions& options) {
  auto way = std::make_unique<MemoryKeyValues>(loop, std::move(table));
  MemoryKeyValues* const plain = way.get();
  return {std::make_unique<StoreMembership>(loop, std::move(way), options), plain};
}

}  // namespace sluice::membership
