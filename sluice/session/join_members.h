// Begins the membership of a job that outlives lost members (docs/members.md): the ranks that have
// met write the first epoch into the store, and connect to each other beside all sessions.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <sluice/base/await.h>
#include <sluice/base/config.h>
#include <sluice/base/net/address.h>
#include <sluice/base/net/epoll_loop.h>
#include <sluice/join/membership/talk/member_channel.h>
#include <sluice/secret/door/doorman.h>
#include <sluice/secret/job_key.h>
#include <sluice/transport/fabric/watch/pulse.h>

namespace sluice::session {

struct JoiningMember {
  net::EpollLoop& loop;
  const base::Config& config;
  Rank rank;
  Address address;           // without a port
  secret::JobKey storeKey;   // the user's, which seals what is in the store
  secret::JobKey fabricKey;  // of this very job
  door::DoorThread door;
  fabric::Pulse* pulse;
  std::function<Result<std::vector<std::string>>(const std::string& key, const std::string& value)>
      gather;
  const base::Interruption& interruption;
};

// True iff the options ask for it.
bool wantsMembers(const base::Config& config);

// Every rank calls it. The result belongs to the loop. Waits; not on the loop.
Result<std::unique_ptr<membership::MemberChannel>> joinMembers(const JoiningMember& joining);

}  // namespace sluice::session
